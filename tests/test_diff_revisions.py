"""`xfcost diff HEAD~1:spec.yaml spec.yaml`: files and code at git revisions, the working tree untouched."""

import json
import os
import subprocess
import sys
import tempfile

import pytest

from helpers import environment, error_of, totals, words_of, xf
from repositories import LAYERS, MODEL, commit, git, repository, spec, write
from xfcost.api.revisions import check_imports, import_folders
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.questions.diff.answer import diff


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    """Two commits: a spec that extends another, and a module that imports its layers."""
    folder = tmp_path_factory.mktemp("repo")
    first = {"specs/base.yaml": spec(ratio=2), "specs/toy.yaml": "extends: ./base.yaml\nname: toy\n"}
    repository(folder, {**first, "model.py": MODEL, "layers.py": LAYERS.format(width=16)})
    commit(folder, {"specs/base.yaml": spec(ratio=3), "layers.py": LAYERS.format(width=24)})
    return folder


@pytest.fixture
def inside(repo, monkeypatch):
    monkeypatch.chdir(repo)
    return repo


# Revisions ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_spec_at_a_revision_extends_the_files_of_that_revision(inside):
    found = diff("HEAD~1:specs/toy.yaml", "HEAD:specs/toy.yaml")
    assert {change.row.title for change in found.changes if change.differences["macs"]} == {
        "MLP up-projection", "MLP down-projection",
    }  # fmt: skip
    assert totals(diff("main:specs/toy.yaml", "specs/toy.yaml"))["macs"] == (totals(found)["macs"][1],) * 2
    assert git(inside, "status", "--porcelain") == ""


def test_code_at_a_revision_imports_what_that_revision_has(inside):
    found = diff("HEAD~1:model.py:build", "main:model.py:build")
    # 5 tokens x 8 x (24 - 16), twice in each of 2 layers
    assert totals(found)["macs"][1] - totals(found)["macs"][0] == 2 * 2 * 5 * 8 * 8
    assert git(inside, "status", "--porcelain") == ""


def test_code_that_is_not_committed_is_compared_with_its_revision(tmp_path):
    folder = repository(tmp_path, {"model.py": MODEL, "layers.py": LAYERS.format(width=16)})
    write(folder, {"layers.py": LAYERS.format(width=8)})
    done = xf("diff", "HEAD:model.py:build", "model.py:build", "--format", "json", cwd=folder)
    macs = json.loads(done.stdout)["totals"]["macs"]
    assert (macs["before"], macs["after"]) == (2 * 2 * 5 * 8 * 16, 2 * 2 * 5 * 8 * 8)
    assert (folder / "layers.py").read_text(encoding="utf-8") == LAYERS.format(width=8)


def test_code_that_imports_from_the_working_tree_is_refused(tmp_path):
    folder = repository(tmp_path / "repo", {"model.py": MODEL, ".gitignore": "layers.py\n"})
    write(folder, {"layers.py": LAYERS.format(width=8)})
    fresh = environment(PYTHONPATH=os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(folder)]))
    done = subprocess.run(
        words_of("diff", "HEAD:model.py:build", "vit"), cwd=folder, env=fresh, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "No module named 'layers'" in done.stderr  # the folder of the working tree is not searched


def test_an_error_at_a_revision_has_its_name_and_not_the_folder_s(inside):
    git(inside, "checkout", "-q", "-b", "broken")
    try:
        commit(inside, {"specs/base.yaml": "name: [\n"})
        for name in ("broken:specs/base.yaml", "HEAD:model.py:nothing"):
            with pytest.raises(XfcostError, match=f"^{name}") as caught:
                diff(name, "vit")
            assert tempfile.gettempdir() not in str(caught.value)
    finally:
        git(inside, "checkout", "-q", "main")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nope:specs/toy.yaml", "there is no such revision"),
        ("mian:specs/toy.yaml", "did you mean main"),
        ("HEAD:specs/toys.yaml", "did you mean specs/toy.yaml"),
        ("HEAD:swin", "expected a file at a revision"),
        (":specs/toy.yaml", "expected a revision before the colon"),
        ("HEAD:package.module:Net", "there is no package/module at that revision"),
        ("--output=x:specs/toy.yaml", "there is no such revision"),
    ],
)
def test_what_is_no_file_at_a_revision(inside, text, told):
    with pytest.raises(UsageError, match=told):
        diff(text, "specs/toy.yaml")


def test_paths_begin_at_the_top_or_with_a_dot_in_this_folder(repo, monkeypatch):
    monkeypatch.chdir(repo / "specs")
    assert diff("HEAD:./toy.yaml", "HEAD:specs/toy.yaml").operations == []
    with pytest.raises(UsageError, match=r"\./toy.yaml is the one in this folder"):
        diff("HEAD:toy.yaml", "toy.yaml")


def test_no_repository_and_no_git(here, monkeypatch):
    write(here, {"a.yaml": spec()})
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(here.parent))
    with pytest.raises(UsageError, match="is not in a git repository"):
        diff("HEAD:a.yaml", "a.yaml")
    monkeypatch.setenv("PATH", str(here))
    with pytest.raises(UsageError, match="git is not installed"):
        diff("HEAD:a.yaml", "a.yaml")


def test_specs_are_compared_and_checked_without_torch(inside):
    code = (
        "import sys, xfcost; xfcost.diff('HEAD~1:specs/toy.yaml', 'specs/toy.yaml');"
        "xfcost.check('specs/toy.yaml', max_macs=1, against='HEAD~1'); print('torch' in sys.modules)"
    )
    done = subprocess.run([*words_of()[:1], "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# What a repository may not do ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rest
def test_no_filter_hook_or_monitor_of_the_repository_runs(here, monkeypatch):
    """Everything that git would run for `checkout` writes a line to a file; the commands of the diff write none."""
    marker = here / "ran"
    folder = repository(here / "repo", {"toy.yaml": spec(), "model.py": MODEL, "layers.py": LAYERS.format(width=16)})
    commit(folder, {".gitattributes": "* filter=loud text eol=crlf\n"})
    loud = f"echo ran >> {marker}"
    for key, value in {"filter.loud.smudge": f"{loud}; cat", "core.fsmonitor": f"{loud}; :"}.items():
        git(folder, "config", key, value)
    hooks = folder / ".git" / "hooks"
    for hook in ("post-index-change", "post-checkout", "reference-transaction"):
        (hooks / hook).write_text(f"#!/bin/sh\n{loud}\n", encoding="utf-8")
        (hooks / hook).chmod(0o755)
    git(folder, "checkout", "-q", "HEAD", "--", "toy.yaml")
    assert marker.exists()  # they do run
    marker.unlink()
    monkeypatch.chdir(folder)
    assert diff("HEAD:toy.yaml", "toy.yaml").operations == []
    assert diff("HEAD:model.py:build", "model.py:build").operations == []
    assert not marker.exists()


def test_what_a_partial_clone_lacks_is_not_fetched(here, monkeypatch):
    """The program of ssh in a repository's configuration would run, from its own address for a fetch."""
    marker = here / "ran"
    folder = repository(here / "repo", {"toy.yaml": spec()})
    for key, value in {
        "core.sshCommand": f"echo ran >> {marker}; false",
        "remote.origin.url": "ssh://example.org/repo",
        "remote.origin.promisor": "true",
        "extensions.partialClone": "origin",
        "core.repositoryFormatVersion": "1",
    }.items():
        git(folder, "config", key, value)
    lost = git(folder, "rev-parse", "HEAD:toy.yaml").strip()
    (folder / ".git" / "objects" / lost[:2] / lost[2:]).unlink()
    with pytest.raises(subprocess.CalledProcessError):
        git(folder, "cat-file", "-p", lost)
    assert marker.exists()  # git itself fetches
    marker.unlink()
    monkeypatch.chdir(folder)
    with pytest.raises(UsageError, match=f"^git cat-file: {lost} of that revision is not in this repository"):
        diff("HEAD:toy.yaml", "toy.yaml")
    assert not marker.exists()


@pytest.fixture
def linked(here, monkeypatch):
    """A repository with links, beside a spec that is not in it."""
    write(here, {"secret.yaml": spec(depth=7)})
    folder = repository(here / "repo", {"specs/toy.yaml": spec(depth=1), "child.yaml": "extends: ./base.yaml\n"})
    for name, target in {
        "inside.yaml": "specs/../specs/toy.yaml",
        "chain.yaml": "inside.yaml",
        "folder": "specs",
        "through.yaml": "folder/toy.yaml",
        "base.yaml": "../secret.yaml",
        "out.yaml": "../secret.yaml",
        "absolute.yaml": str(here / "secret.yaml"),
        "round.yaml": "round.yaml",
        "nowhere.yaml": "none.yaml",
        "up": ".",
        "crooked.yaml": "up/../secret.yaml",  # without its links it would be secret.yaml
        "to_folder.yaml": "specs",
    }.items():
        (folder / name).symlink_to(target)
    commit(folder, {})
    monkeypatch.chdir(folder)
    return folder


def test_a_link_inside_a_revision_is_followed_there(linked):
    write(linked, {"specs/toy.yaml": spec(depth=5)})
    for name in ("inside.yaml", "chain.yaml", "through.yaml"):
        assert diff(f"HEAD:{name}", "HEAD:specs/toy.yaml").operations == []


@pytest.mark.parametrize("name", ["out", "absolute", "round", "nowhere", "crooked", "to_folder"])
def test_a_link_out_of_a_revision_is_refused(linked, name):
    with pytest.raises(UsageError, match=f"^HEAD:{name}.yaml: is a link that leads to no file"):
        diff(f"HEAD:{name}.yaml", "specs/toy.yaml")


@pytest.mark.parametrize("outside", [[], ["--allow-outside"]])
def test_a_spec_of_a_revision_extends_nothing_outside_by_a_link(linked, outside):
    assert "HEAD:base.yaml: no such file" in error_of(*outside, "diff", "HEAD:child.yaml", "specs/toy.yaml", cwd=linked)


def test_a_commit_whose_paths_lead_out_of_a_folder_is_refused(here, monkeypatch):
    """git itself makes no such commit, but it may be fetched: a tree with an entry `..`."""
    folder = repository(here / "repo", {"toy.yaml": spec()})
    blob = git(folder, "rev-parse", "HEAD:toy.yaml").strip()
    inner = made(folder, "tree", b"100644 planted\0" + bytes.fromhex(blob))
    entries = b"40000 ..\0" + bytes.fromhex(inner) + b"100644 toy.yaml\0" + bytes.fromhex(blob)
    tree = made(folder, "tree", entries)
    git(folder, "update-ref", "refs/heads/bad", git(folder, "commit-tree", "-m", "bad", tree).strip())
    monkeypatch.chdir(folder)
    with pytest.raises(UsageError, match=r"^\.\./planted: no file of a commit may have that name"):
        diff("bad:toy.yaml", "toy.yaml")


def made(folder, kind, content):
    """The name of an object that is stored as it is given."""
    done = subprocess.run(
        ["git", "hash-object", "-w", "--literally", "-t", kind, "--stdin"],
        cwd=folder, input=content, capture_output=True, check=True,
    )  # fmt: skip
    return done.stdout.decode().strip()


# Code of a revision ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_folders_of_the_working_tree_are_replaced_by_those_of_the_revision(tmp_path):
    top, folder = tmp_path / "top", tmp_path / "rev"
    for path in (top / "src", top / "lib", folder / "src", tmp_path / "elsewhere"):
        path.mkdir(parents=True)
    entries = [str(top / "src"), str(top / "lib"), str(tmp_path / "elsewhere"), str(top)]
    assert import_folders(entries, folder, top) == [str(folder), str(folder / "src"), str(tmp_path / "elsewhere")]


def test_an_import_from_the_working_tree_is_refused(tmp_path, monkeypatch):
    check_imports(tmp_path)
    module = type(sys)("editable")
    module.__file__ = str(tmp_path / "editable.py")
    monkeypatch.setitem(sys.modules, "editable", module)
    with pytest.raises(XfcostError, match=r"imports editable from the working tree \(editable.py\)"):
        check_imports(tmp_path)
