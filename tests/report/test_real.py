"""Reports on real models, in a real browser: quiet, drawn, at a phone's width, in the dark, alive."""

import json
import re

import pytest
from typer.testing import CliRunner

from layerwise.cli.app import app
from layerwise.model import LayerModel
from layerwise.train import load_recipe
from support.report_page import PHONE, column, fits, hover, opened, shown_tooltip, text
from support.training import save_dev, texts, train_recipe

MOST_BYTES = 5_000_000
pytestmark = pytest.mark.slow  # report/test_browser.py looks at the same pages of tiny models


def report(folder, *arguments):
    """The file that the command writes; the cache is the module's own."""
    out = folder / "report.html"
    words = ["report", *map(str, arguments), "-o", str(out)]
    result = CliRunner().invoke(app, words, env={"LAYERWISE_CACHE": str(folder / "cache")}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    return report(tmp_path_factory.mktemp("minilm"), "default", "--limit", "60")


@pytest.fixture(scope="module")
def wiki(tmp_path_factory, shared):
    pairs = ["--pairs", "stsb", "--data", shared / "data", "--limit", "80"]
    return report(tmp_path_factory.mktemp("wiki"), shared / "models" / "wiki-mlm-12x384", *pairs)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """SimCSE against SSCL by the package's recipes, cut to a few steps of the embedded encoder."""
    folder = tmp_path_factory.mktemp("trained")
    short = ["train.steps=2", "train.batch_size=8", "train.precision=float32", "dev.every=1", "dev.log_every=1"]
    data = str(save_dev(folder / "data"))
    for name in ("small-simcse", "small-sscl-simcse"):
        done = train_recipe(load_recipe(name, short), folder / name, encoder="default", corpus=texts(), data=data)
        done.model.save(folder / name / "model")
    runs = [word for name in ("small-simcse", "small-sscl-simcse") for word in ("--train", folder / name)]
    models = [folder / "small-sscl-simcse" / "model", "--against", folder / "small-simcse" / "model"]
    return report(folder, *models, *runs, "--limit", "24")


@pytest.fixture(
    params=[
        pytest.param("minilm", marks=pytest.mark.slow),
        pytest.param("wiki", marks=[pytest.mark.shared, pytest.mark.slow]),
        "trained",
    ],
    scope="module",
)
def page(request):
    return request.getfixturevalue(request.param)


BOXES = """[...document.querySelectorAll('.drawing')].map(e => {
  const [own, svg] = [e, e.querySelector('svg')].map(one => one.getBoundingClientRect());
  return [own.left, own.right, svg.width, svg.height];
})"""


@pytest.mark.parametrize(("look", "scheme"), [({}, "light"), (PHONE, "dark")], ids=["1280", "390"])
def test_quiet_and_all_figures_drawn(browser, page, look, scheme):
    with opened(browser, page, scheme=scheme, **look) as (tab, log):
        width = tab.evaluate("innerWidth")
        boxes = tab.evaluate(BOXES)
        assert len(boxes) == page.read_text().count('<div class="drawing"') + 1  # and the chosen pair's
        assert len(boxes) >= 10
        assert all(left >= 0 and right <= width and w > 100 and h > 50 for left, right, w, h in boxes)
        assert fits(tab)
        ground = tab.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
        assert log.problems == []
        assert log.requests == [page.resolve().as_uri()]


def test_letters_of_wide_figures_can_be_read_on_a_phone(browser, page):
    with opened(browser, page, **PHONE) as (tab, _):
        sizes = tab.evaluate(
            "[...document.querySelectorAll('figure svg')].map(e => Math.min(...[...e.querySelectorAll('text')]"
            ".map(t => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a).filter(size => size > 0)))"
        )
        assert min(sizes) > 6.5


def test_points_tell_their_values_once(browser, page):
    with opened(browser, page) as (tab, _):
        label = tab.evaluate("document.querySelector('figure .point').dataset.label")
        assert re.search(r": −?\d", label)
        hover(tab, "figure .point")
        assert shown_tooltip(tab) == label
        tab.evaluate("document.querySelector('figure .point').dispatchEvent(new PointerEvent('pointerover'))")
        assert tab.evaluate("document.querySelector('figure .point.told > title, figure .point:hover > title')") is None


def test_tables_sort_and_pairs_are_chosen(browser, page):
    with opened(browser, page) as (tab, log):
        names = tab.evaluate("[...document.querySelectorAll('#measures thead th')].map(e => e.innerText.trim())")
        place = names.index("anisotropy") + 1
        before = column(tab, place - 1)
        tab.click(f"#measures thead th:nth-child({place}) button")
        after = column(tab, place - 1)
        assert sorted(before) == sorted(after)
        values = [float(value.replace("−", "-")) for value in after]
        assert values in (sorted(values), sorted(values, reverse=True))
        data = json.loads(tab.evaluate("document.querySelector('#pair_data').textContent"))
        tab.evaluate("document.querySelector('#pair_list').focus()")
        seen = set()
        for _ in range(3):
            tab.keyboard.press("ArrowDown")
            seen.add(text(tab, "#pair_left"))
        assert seen <= {pair[0] for pair in data["pairs"]}
        assert len(seen) > 1
        left, right = text(tab, "#pair_left"), text(tab, "#pair_right")
        row = next(i for i, pair in enumerate(data["pairs"]) if tuple(pair[:2]) == (left, right))
        last = data["rows"][row][-1]
        assert f"{last:.3f}".replace("-", "−") in text(tab, "#pair_facts")
        assert log.problems == []


def test_two_models_have_the_same_colours_everywhere(browser, trained):
    """The other model comes first in the figures, in the first colour; so it does among the pairs."""
    with opened(browser, trained) as (tab, _):
        own, other = (
            tab.evaluate(f"getComputedStyle(document.querySelector('#pair_chart path.{kind}')).stroke")
            for kind in ("own", "second")
        )
        first, second = (
            tab.evaluate(
                f"(() => {{const e = document.createElement('i'); e.style.color = 'var(--series-{n})';"
                "document.body.append(e); return getComputedStyle(e).color})()"
            )
            for n in (1, 2)
        )
        assert (other, own) == (first, second)
        assert "small-sscl-simcse" in text(tab, "#pair_legend")
        titles = tab.evaluate("[...document.querySelectorAll('section > h2')].map(e => e.textContent)")
        assert "Training" in titles
        assert "small-sscl-simcse" in text(tab, "#answer .answer")


def test_reports_are_small_and_whole(page):
    assert page.stat().st_size < MOST_BYTES
    words = page.read_text(encoding="utf-8")
    assert words.rstrip().endswith("</html>")
    assert "://" not in re.sub(r"http://www\.w3\.org/[\w/]+", "", words)


def test_a_trained_model_is_the_one_that_was_saved(trained):
    assert LayerModel.load(trained.parent / "small-simcse" / "model", device="cpu").mix.poolings == ("cls",)
