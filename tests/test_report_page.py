"""`xfcost report`: one HTML file that is whole, loads nothing, escapes names and holds what was counted; no browser."""

import base64
import hashlib
import re
from importlib.resources import files
from itertools import pairwise, takewhile

import pytest
import torch

import xfcost
from helpers import xf
from pages import HOSTILE, Strict, contrast, figure, hostile_spec, page_of, written
from test_roofline import found as measured
from xfcost.api.runs import make_run
from xfcost.counting.system import AccountOptions
from xfcost.ledger import units
from xfcost.ledger.least_work import row_bound
from xfcost.questions.report.answer import page_content
from xfcost.questions.report.page.page import page_html
from xfcost.spec.load import load
from xfcost.systems.spec import SpecSystem

LINEAR = ("torch.nn:Linear", "--build", "in_features=3", "--build", "out_features=4")
TWO = ("vit-s8", "swin-t", "--N", "784")
# words of the command -> what is special about the page
PAGES = {
    "two image models": TWO,
    "one text model": ("llama3.2-1b", "--N", "1024"),
    "decode": ("gpt2", "mamba-130m", "--mode", "decode", "--N", "512"),
    "train": ("gpt2", "--mode", "train", "--tokens", "1e9"),
    "streams of two lengths": ("transformer-base", "--N", "100,200"),
    "many systems": ("vit-ti16", "deit-s", "deit-b", "swin-t", "pvt-tiny", "--size", "224"),
    "a grid that is no square": ("swin-t", "--size", "160x320"),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_whole_html_and_loads_nothing(name):
    page = page_of(*PAGES[name])
    parsed = Strict(page)
    assert page.startswith("<!DOCTYPE html>\n")
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)  # the name of SVG's elements is no address
    assert not parsed.all("link")
    assert not parsed.all("iframe")
    assert all("src" not in one for one in parsed.all("script"))
    assert all(one["src"].startswith("data:image/svg+xml;base64,") for one in parsed.all("img"))
    assert not [name for name in parsed.values("style") if name]
    assert all(value.startswith("#") for value in parsed.values("href"))
    assert {value[1:] for value in parsed.values("href")} <= set(parsed.values("id"))


def test_the_policy_runs_this_script_alone():
    page = page_of(*TWO)
    (policy,) = (one["content"] for one in Strict(page).all("meta") if one.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    for tag, source in (("style", "style-src"), ("script", "script-src")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{source} 'sha256-{digest}'" in policy


def test_names_are_texts_and_never_run(tmp_path):
    page = written([str(hostile_spec(tmp_path))], tmp_path / "page.html")
    parsed = Strict(page)
    assert "<script>alert" not in page
    assert "<img" not in page
    assert [system["name"] for system in parsed.data["systems"]] == [HOSTILE]
    assert HOSTILE in "".join(parsed.texts)
    assert len(parsed.all("script")) == 2
    assert "<" not in parsed.scripts[0]


def test_headings_come_in_order_and_landmarks_are_there():
    parsed = Strict(page_of(*TWO))
    levels = [int(tag[1]) for tag, _, _ in parsed.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for landmark in ("header", "main", "nav", "footer"):
        assert len(parsed.all(landmark)) == 1
    labels = parsed.values("aria-labelledby")
    assert len(labels) == 8
    assert set(labels) <= set(parsed.values("id"))
    assert parsed.all("html")[0]["lang"] == "en"


def test_every_table_has_a_caption_and_every_header_its_scope():
    parsed = Strict(page_of(*TWO))
    assert len(parsed.all("caption")) == len(parsed.all("table")) == 5
    assert all(header.get("scope") in {"row", "col"} for header in parsed.all("th"))
    sorts = [parents for tag, attributes, parents in parsed.elements if attributes.get("aria-sort")]
    assert sorts
    buttons = [parents for tag, _, parents in parsed.elements if tag == "button" and "thead" in parents]
    assert len(buttons) == len(sorts)
    labelled = set(parsed.values("for"))
    assert {one["id"] for tag in ("input", "select") for one in parsed.all(tag)} <= labelled


@pytest.mark.parametrize("name", PAGES)
def test_the_page_has_the_counted_integers(name):
    words = PAGES[name]
    data = Strict(page_of(*words)).data
    mode = words[words.index("--mode") + 1] if "--mode" in words else "forward"
    specs = takewhile(lambda word: not word.startswith("-"), words)
    assert len(data["sizes"]) == len(data["labels"]) > 50
    for spec, system in zip(specs, data["systems"], strict=True):
        for place in (0, len(data["sizes"]) // 3, len(data["sizes"]) - 1):
            total = figure(system["whole"]["total"]["macs"], place)
            if total is None:
                continue
            run = make_run(N=data["sizes"][place], mode=mode)
            ledger = SpecSystem(load(spec, ())).account(run, AccountOptions(orders=False))
            assert total == ledger.total("macs")
            rows = [figure(row["macs"], place) for row in system["rows"]]
            assert sum(rows) == total
            memory = figure(system["whole"]["total"]["attention_bytes"], place)
            assert memory == ledger.attention_memory()["all_layers"]


def test_the_figures_that_are_written_are_those_of_the_ledger():
    page = page_of(*TWO)
    total = SpecSystem(load("vit-s8", ())).account(make_run(N=784), AccountOptions()).total("macs")
    place = 'data-system="0" data-quantity="macs" data-whole="total"'
    assert f'<data value="{total}" {place}>{units.count(total)}</data>' in page
    assert "9,216·N² + 21,325,824·N + 21,626,880" in page


def test_the_heading_has_the_size_of_the_images_that_all_systems_see():
    heads = [
        re.search(r"<h1>(.*)</h1>", page_of(*words))[1] for words in (("vit-s8", "swin-t"), TWO, ("vit-s8", "gpt2"))
    ]
    assert [head.endswith(" at 224×224") for head in heads] == [True, False, False]


def test_systems_at_different_n_open_at_their_own():
    data, common = (Strict(page_of(*words)).data for words in (("vit-s8", "gpt2"), TWO))
    assert (data["common"], common["common"]) == (False, True)
    # Swin-T's stages have other lengths: the next has a quarter of its tokens
    assert (data["of_axis"], common["of_axis"]) == ("", " of the first stage")


def test_text_is_readable_in_both_themes():
    css = files("xfcost.questions.report.page").joinpath("page.css").read_text("utf-8")
    colours = {
        name: (light, dark) for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", css)
    }
    inks = ("ink", "quiet", "accent", "per-token", "local", "global", "unknown", *(f"system-{n}" for n in range(8)))
    for theme in (0, 1):
        for ink in inks:
            for ground in ("paper", "panel"):
                assert contrast(colours[ink][theme], colours[ground][theme]) >= 4.5, (ink, ground, theme)
        systems, kinds = ({colours[ink][theme] for ink in some} for some in (inks[7:], inks[3:7]))
        assert not systems & kinds
        assert len(systems) == 8
    assert set(re.findall(r"#[0-9a-f]{6}", css)) == {one for pair in colours.values() for one in pair} | {"#ffffff"}


@pytest.mark.parametrize(
    "words",
    [
        ("vit", "swin", "--size", "224"),
        ("gpt2", "--mode", "decode", "--on", "h100-sxm", "--mbu", "60%"),
        ("vit", "swin", "--size", "224", "--on", "h100-sxm"),
        ("vit", "--set", "stages.0.depth=4"),
        ("llama3-70b", "--mode", "decode", "--on", "h100-sxm"),
        ("gpt2", "--mode", "train", "--tokens", "1e9"),
        ("gpt2-xl", "--mode", "train", "--tokens", "1000", "--on", "rtx-4090"),
    ],
    ids=" ".join,
)
def test_a_reader_without_the_tool_meets_none_of_its_options(words):
    assert not re.findall(r"(?<!\S)--[a-z]\S*", " ".join(Strict(page_of(*words)).texts))


def test_operations_of_one_name_are_one_row():
    # ViT's 12 blocks have 2 norms each, and its head one; a residual sum follows each of the 24 sub-layers
    page = page_of(*TWO)
    assert ">Layer norm ×25<" in page
    assert ">Residual add ×24<" in page


def test_the_command_says_the_answer_and_writes_one_file(tmp_path):
    done = xf("report", "vit-s8", "swin-t", "--N", "784", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == "Wrote vit-s8-swin-t-report.html\n"
    assert [path.name for path in tmp_path.iterdir()] == ["vit-s8-swin-t-report.html"]


def test_python_writes_the_page_that_the_command_writes(tmp_path):
    target = tmp_path / "page.html"
    comparison = xfcost.write_report("vit-s8", "swin-t", N=784, output=target)
    assert target.read_text("utf-8") == page_of(*TWO)
    assert comparison.ledgers[0].total("macs") == 22_405_742_592
    with pytest.raises(xfcost.XfcostError, match="already exists"):
        xfcost.write_report("gpt2", output=target)
    # a module of Python, and a slider: 5 tokens, each 3·4 MACs
    xfcost.write_report((torch.nn.Linear(3, 4), torch.zeros(5, 3)), output=target, force=True)
    assert '<data value="60"' in target.read_text("utf-8")
    xfcost.write_report("gpt2", N=128, slider=(64, 256), output=str(target), force=True)
    sizes = Strict(target.read_text("utf-8")).data["sizes"]
    assert (sizes[0], sizes[-1]) == (64, 256)


@pytest.mark.parametrize("slider", [(256, 64), (64,), "64:x", 64, (0, 64)])
def test_a_slider_is_two_rising_numbers(tmp_path, slider):
    with pytest.raises(xfcost.XfcostError, match="slider: expected the lowest and the highest N"):
        xfcost.write_report("gpt2", output=tmp_path / "page.html", slider=slider)
    assert not list(tmp_path.iterdir())


@pytest.mark.rest
def test_a_module_without_n_has_a_page_without_slider(tmp_path):
    page = written([*LINEAR, "--input", "2x3"], tmp_path / "p.html")
    parsed = Strict(page)
    assert parsed.data == {}
    assert "There is no slider" in page
    assert not parsed.all("svg")


def test_a_module_with_n_has_its_counts(tmp_path):
    data = Strict(written([*LINEAR, "--input", "Nx3", "--N", "32"], tmp_path / "p.html")).data
    (system,) = data["systems"]
    for place, n in enumerate(data["sizes"]):
        assert figure(system["whole"]["total"]["macs"], place) == 12 * n


@pytest.mark.rest
def test_a_timed_system_has_its_roofline_as_picture_and_table():
    systems, found = [SpecSystem(load("tiny", ()))], measured()
    content = page_content(systems, make_run(), AccountOptions())._replace(rooflines=[found])
    parsed = Strict(page := page_html(content))
    (picture,) = parsed.all("img")
    assert picture["alt"].startswith("Roofline of One; cpu, Abacus, 1 thread; peak 100 GFLOP/s, memory 20.0 GB/s")
    assert base64.b64decode(picture["src"].partition(",")[2]).startswith(b"<?xml")
    # 20 GFLOP in 0.25 s, 20/6 FLOP/byte: under the ridge point of 5
    assert re.search(r"Scores</th>.*?global mixing.*?250 ms.*?25\.0 %.*?3\.33.*?80\.0 G.*?memory-bound", page)
    assert len(parsed.all("caption")) == 5


def test_a_device_has_its_roofs_without_a_run():
    page = page_of("gpt2", "--mode", "decode", "--on", "h100-sxm")
    (picture,) = Strict(page).all("img")
    assert picture["alt"].startswith("Roofline of GPT-2 (124M); NVIDIA H100 SXM 80 GB; peak 989 TFLOP/s, memory 3.35 T")
    ledger = xfcost.analyze("gpt2", mode="decode", on="h100-sxm", trace=False)
    least = sum(row_bound(row, ledger).least_seconds * row.times for row in ledger.rows if row_bound(row, ledger))
    assert f"at the roofs: {units.seconds(least)} in all" in page
    # the products of eager attention in a decode step have no bytes in closed form
    assert not Strict(page_of("gpt2", "--mode", "decode", "--attention", "eager", "--on", "h100-sxm")).all("img")


def test_a_page_of_too_many_operations_is_refused(tmp_path):
    blocks = "".join(f"      - [{{kind: mlp, hidden: {hidden}}}]\n" for hidden in range(1, 1001))
    stage = f"  - dim: 4\n    depth: 1000\n    pattern:\n{blocks}"
    entry = "input: {kind: tokens, vocabulary: 7, length: 5}\nembed: [{kind: token}]"
    (tmp_path / "many.yaml").write_text(f"name: Many\n{entry}\nstages:\n{stage}", encoding="utf-8")
    done = xf("report", "many.yaml", cwd=tmp_path)
    # of each block: norm, two maps, an activation, the residual; and the token table
    expected = "Many has 5,001 operations, and a page shows 5,000 of a system at most; `xfcost analyze` lists more"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"error: {expected}")
    assert not (tmp_path / "many-report.html").exists()
