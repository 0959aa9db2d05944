"""The GitHub Action of `action.yml`: its script, run in a repository with a `gh` that keeps what it is given."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from helpers import environment
from repositories import commit, git, repository, spec

ACTION = yaml.safe_load((Path(__file__).parents[1] / "action.yml").read_text(encoding="utf-8"))
# Lists one comment of another tool and FOUND; keeps the arguments and the body of what it writes.
GH = """#!/bin/sh
case "$*" in
*--jq*) printf "$FOUND" ;;
*) echo "$@" > {folder}/arguments; for last; do :; done; cp "${{last#body=@}}" {folder}/body; exit $FAILS ;;
esac
"""


@pytest.fixture
def ran(tmp_path):
    """The script, run on two models: `(done, arguments of gh, body, summary)`."""
    top, programs = tmp_path / "repository", tmp_path / "programs"
    programs.mkdir()
    scripts = {"gh": GH.format(folder=tmp_path), "xfcost": f'#!/bin/sh\nexec {sys.executable} -m xfcost "$@"\n'}
    for name, text in scripts.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    def run(models, options="", found="", fails="0"):
        (script,) = [step["run"] for step in ACTION["runs"]["steps"] if step["name"] == "Compare"]
        given = {"BASE": base, "MODELS": models, "OPTIONS": options, "PR": "7", "FOUND": found, "FAILS": fails,
                 "GITHUB_REPOSITORY": "some/models", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
                 "RUNNER_TEMP": str(tmp_path), "PATH": f"{programs}:{os.environ['PATH']}"}  # fmt: skip
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]  # as GitHub's `shell: bash`
        done = subprocess.run(words, cwd=top, env=environment(**given), capture_output=True, text=True, check=False)
        files = [tmp_path / name for name in ("arguments", "body", "summary")]
        return done, *(file.read_text(encoding="utf-8") if file.exists() else "" for file in files)

    repository(top, {"tiny.yaml": spec(depth=2)})
    base = git(top, "rev-parse", "HEAD").strip()
    commit(top, {"tiny.yaml": spec(depth=3), "new.yaml": spec()})
    return run


@pytest.mark.rest
def test_a_first_comment_has_what_changed(ran):
    done, arguments, body, summary = ran("tiny.yaml\nnew.yaml\n", "--batch 2")
    assert done.returncode == 0, done.stderr
    assert arguments.startswith("api --silent --method POST repos/some/models/issues/7/comments --field body=@")
    assert body == summary
    assert body.startswith("<!-- xfcost diff -->\n\n### `tiny.yaml`\n")
    assert "batch 2" in body
    assert "2 → 3" in body
    assert body.endswith("### `new.yaml`\n\nis new in this pull request.\n")


@pytest.mark.rest
def test_a_later_push_edits_the_comment_and_a_token_that_can_t_is_a_warning(ran):
    url = "https://api.github.com/repos/some/models/issues/comments/5"
    done, arguments, _, summary = ran("tiny.yaml", found=f"{url}\\n{url}6\\n", fails="1")
    assert f" --method PATCH {url} " in arguments
    assert done.returncode == 0
    assert done.stdout.startswith("::warning::no comment: ")
    assert "2 → 3" in summary


@pytest.mark.rest
def test_a_model_that_can_t_be_read_fails_the_step(ran):
    done, arguments, *_ = ran("tiny.yaml", "--batch none")
    assert done.returncode == 2
    assert "--batch none" in done.stderr
    assert arguments == ""
