"""The page of `xfcost report` in a real browser: tables sort, the slider's figures are counted, names are inert.

It needs Playwright and a Chromium: docs/report.md tells how to get them.
"""

import io
import os
import shutil

import pytest
from PIL import Image

from pages import HOSTILE, hostile_spec, written
from xfcost.api.runs import make_run
from xfcost.counting.system import AccountOptions
from xfcost.ledger import units
from xfcost.spec.load import load
from xfcost.systems.spec import SpecSystem

pytestmark = pytest.mark.browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
TWO = ("vit-s8", "swin-t", "--N", "784")


@pytest.fixture(scope="module")
def chromium():
    sync_api = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install 'xfcost[browser]'")
    path = os.environ.get("XFCOST_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium: install one, or give its path in XFCOST_BROWSER (docs/report.md)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def opened(chromium, folder):
    """open(words): the page in a fresh tab; whatever goes wrong or is loaded in it fails the test."""
    wrong = []
    contexts = []

    def open_page(words, **context):
        path = folder / f"{'-'.join(map(str, words)).replace('/', '_')}.html"
        if not path.exists():
            written(words, path)
        contexts.append(chromium.new_context(**{"reduced_motion": "reduce", **context}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        page.on(
            "request",
            lambda request: wrong.append(request.url) if not request.url.startswith(("file:", "data:")) else None,
        )
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def choose(page, place):
    """Move the slider to the N at `place`."""
    page.evaluate(
        "place => { const n = document.getElementById('n'); n.value = place; n.dispatchEvent(new Event('input')); }",
        place,
    )


def shown(page, system, quantity):
    """The exact value and the text of a system's total."""
    figure = page.locator(f'data[data-whole="total"][data-system="{system}"][data-quantity="{quantity}"]').first
    return figure.get_attribute("value"), figure.text_content()


@pytest.mark.parametrize(
    "words",
    [
        TWO,
        ("llama3-8b", "gpt2", "--N", "512"),
        ("transformer-base", "--N", "64"),
        ("bigbird-base", "common-routing", "--N", "1024"),
        ("llama3.2-1b", "--mode", "decode", "--N", "4096", "--batch", "3"),
    ],
    ids=" ".join,
)
def test_at_every_n_of_the_slider_the_page_has_python_s_integers(opened, words):
    page = opened(words)
    specs = [word for word in words[: words.index("--N")] if not word.startswith("-") and word != "decode"]
    options = {"mode": "decode", "batch": 3} if "decode" in words else {}
    # all totals at all N, as the page's script evaluates them
    found = page.evaluate(
        """() => xfcost.page.systems.map((system) => xfcost.page.sizes.map((_, place) =>
             ["macs", "attention_bytes", "cache_bytes"]
             .map((quantity) => xfcost.whole(system, "total", quantity, place)?.toString() ?? null)))"""
    )
    sizes = page.evaluate("() => xfcost.page.sizes")
    loaded = [load(spec, ()) for spec in specs]
    for spec, figures in zip(loaded, found, strict=True):
        assert len(figures) == len(sizes) > 60
        for n, (macs, memory, cache) in list(zip(sizes, figures, strict=True))[::3]:
            if macs is None:
                with pytest.raises(Exception, match=r"positions|rows|N can be"):
                    SpecSystem(spec).account(make_run(N=n, **options), AccountOptions(orders=False))
                continue
            ledger = SpecSystem(spec).account(make_run(N=n, **options), AccountOptions(orders=False))
            assert int(macs) == ledger.total("macs"), n
            assert int(memory) == ledger.attention_memory()["all_layers"], n
            assert int(cache) == ledger.cached_bytes, n


def test_the_slider_changes_every_figure_and_its_words_are_python_s(opened):
    page = opened(TWO)
    sizes = page.evaluate("() => xfcost.page.sizes")
    assert page.locator("#n-text").text_content() == "N = 784 (28×28)"
    for place in (0, 1, 40, len(sizes) - 1):
        choose(page, place)
        for system, spec in enumerate(("vit-s8", "swin-t")):
            ledger = SpecSystem(load(spec, ())).account(make_run(N=sizes[place]), AccountOptions(orders=False))
            macs, memory = ledger.total("macs"), ledger.attention_memory()["all_layers"]
            assert shown(page, system, "macs") == (str(macs), units.count(macs))
            assert shown(page, system, "attention_bytes") == (str(memory), units.size(memory))
            rows = page.locator(f'#operations data[data-system="{system}"][data-quantity="macs"]')
            assert sum(int(row.get_attribute("value")) for row in rows.all()) == macs
            per_token = ledger.total("macs", lambda row: row.mixing == "per-token")
            share = page.locator(f'#kinds td:has(data[data-whole="per-token"][data-system="{system}"]) [data-share]')
            assert share.text_content() == units.percent(per_token, macs)
            stages = page.locator(f"#tree-{system} > details > summary")
            parts = [ledger.part(rows).total("macs") for rows in ledger.by("stage").values()]
            assert stages.locator('data[data-quantity="macs"]').all_text_contents() == [*map(units.count, parts)]
            shares = [units.percent(part, macs) for part in parts]
            assert stages.locator("[data-share]").all_text_contents() == shares
            exact = page.locator("#growth tbody tr").nth(system).locator(".exact").nth(1)
            assert exact.text_content() == f"{macs:,}"
        assert f"N = {sizes[place]:,}" in page.locator("#operations caption").first.text_content()


def test_tables_sort_by_keyboard_and_say_so(opened):
    page = opened(TWO)
    header = page.locator("#operations table").first.locator("th", has_text="MACs (share)")
    header.locator("button").focus()

    def values():
        figures = page.locator("#operations table").first.locator('data[data-quantity="macs"]')
        return [int(one.get_attribute("value")) for one in figures.all()]

    written_order = values()
    page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") == "descending"
    assert values() == sorted(written_order, reverse=True) != written_order
    page.keyboard.press("Space")
    assert header.get_attribute("aria-sort") == "ascending"
    assert values() == sorted(written_order)
    first = page.locator("#operations table").first.locator("th", has_text="operation")
    first.locator("button").click()
    assert (first.get_attribute("aria-sort"), header.get_attribute("aria-sort")) == ("ascending", "none")
    names = page.locator("#operations table").first.locator("tbody th").all_text_contents()
    assert names == sorted(names, key=str.lower)


def test_the_slider_and_the_tree_work_by_keyboard(opened):
    page = opened(TWO)
    page.locator("#n").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#n").get_attribute("aria-valuetext") == "N = 841 (29×29)"
    page.keyboard.press("End")
    assert page.locator("#n-text").text_content() == "N = 50,176 (224×224)"
    summary = page.locator("#tree-0 summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("#tree-0 details").first.get_attribute("open") is not None
    page.get_by_role("button", name="Open all of Swin-T").press("Enter")
    assert page.locator("#tree-1 details:not([open])").count() == 0


def test_the_plot_has_a_line_of_each_and_says_what_it_shows(opened):
    page = opened(TWO)
    lines = page.locator("#plot polyline")
    assert lines.count() == 2
    assert len({lines.nth(n).evaluate("one => getComputedStyle(one).strokeDasharray") for n in (0, 1)}) == 2
    label = page.locator("#plot").get_attribute("aria-label")
    assert label.startswith("MACs against N, both axes logarithmic: ViT-S/8 from 1.089 G at 49 to ")
    page.locator("#metric").select_option("attention_bytes")
    assert page.locator("#plot").get_attribute("aria-label").startswith("attention memory against N")
    before = lines.first.get_attribute("points")
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_function(
        "before => document.querySelector('#plot polyline').getAttribute('points') !== before", arg=before
    )
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_name_is_inert(opened, tmp_path):
    page = opened([str(hostile_spec(tmp_path))])
    assert HOSTILE in page.locator("h1").text_content()
    assert page.locator("img").count() == 0
    assert page.evaluate("() => xfcost.page.systems[0].name") == HOSTILE
    assert HOSTILE[:3] in page.locator("#plot text").last.text_content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes(opened, scheme):
    page = opened(TWO, color_scheme=scheme)
    background = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")  # noqa: E731
    own, colours = background(), []
    for name in ("light", "dark", "auto"):
        page.locator("#theme").click()
        assert page.locator("#theme").text_content() == f"Theme: {name}"
        colours.append(background())
    assert colours == ["rgb(255, 255, 255)", "rgb(21, 24, 28)", own]
    assert own == colours[("light", "dark").index(scheme)]


@pytest.mark.parametrize(("scheme", "clicks", "dark"), [("dark", 0, True), ("light", 2, True), ("dark", 1, False)])
def test_the_roofline_is_as_dark_as_the_page(opened, scheme, clicks, dark):
    page = opened(("gpt2", "--mode", "decode", "--on", "h100-sxm"), color_scheme=scheme)
    for _ in range(clicks):
        page.locator("#theme").click()
    shot = Image.open(io.BytesIO(page.locator(".picture").screenshot())).convert("L")
    corner = shot.getpixel((shot.width - 20, 20))
    assert corner < 60 if dark else corner > 240


def test_on_paper_everything_is_open_and_controls_are_gone(opened):
    page = opened(TWO)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    assert not any(one.is_visible() for one in page.locator(".controls").all())
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_a_phone_shows_the_sections_and_the_kinds_of_operations(opened):
    page = opened(TWO, viewport={"width": 390, "height": 800})
    for shown in ("nav a", "#operations .kind"):
        ends = page.eval_on_selector_all(shown, "every => every.map(one => one.getBoundingClientRect().right)")
        assert len(ends) > 5
        assert max(ends) <= 390


@pytest.mark.parametrize("width", [1280, 390])
def test_the_answer_and_the_plot_are_on_the_first_screen(opened, width):
    page = opened(TWO, viewport={"width": width, "height": 800})
    tops = [page.locator(one).bounding_box()["y"] for one in ("#answer li >> nth=0", "#plot")]
    assert tops[0] < tops[1] < 600
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("document.documentElement.scrollHeight") < 6000
    # where columns are hidden, a line says so
    hidden = page.evaluate("[...document.querySelectorAll('.wide')].map(one => one.scrollWidth > one.clientWidth + 1)")
    assert [*map(bool, hidden)] == page.evaluate(
        "[...document.querySelectorAll('.wide')].map(one => one.classList.contains('scrolls'))"
    )
    assert any(hidden) == (width == 390)


def test_without_script_the_page_has_its_figures(opened):
    page = opened(TWO, java_script_enabled=False)
    assert page.locator('#growth data[data-quantity="macs"]').all_text_contents() == ["22.41 G", "1.180 G"]
    assert "Without JavaScript" in page.locator("noscript").text_content()
