"""The report page in a real browser: drawn, quiet, at any width, in both themes, by pointer and by keyboard."""

from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import Error
from scipy.stats import rankdata

from layerwise.report import write_page
from layerwise.report.page import Column, ExplainedPairs, Explorer, PairTerms, Table
from support.report_page import PHONE, column, fits, hover, open_file, opened, scroll_to, shown_tooltip, tap, text
from support.sample_page import HOSTILE, some_explorer, some_page

# Contrast as WCAG 2 defines it, of an element's text with the first opaque background behind it.
CONTRAST = """
(selector) => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (colour) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgba(colour).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const element = document.querySelector(selector);
  let behind = element;
  while (behind.parentElement && rgba(getComputedStyle(behind).backgroundColor)[3] < 255) behind = behind.parentElement;
  const own = getComputedStyle(element);
  const pair = [element instanceof SVGElement ? own.fill : own.color, getComputedStyle(behind).backgroundColor];
  const [low, high] = pair.map(luminance).sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}
"""
TEXTS = (
    *(
        "h1",
        "header p",
        "#answer .answer",
        "#answer .answer + .answer",
        ".facts dt",
        ".facts .value",
        ".facts .note",
        "h2#layers_title",
    ),
    *("figcaption h3", "figcaption p", "figure .note", ".contents a", ".contents a[aria-current]", "thead th button"),
    *("tbody td", "summary", ".pairs dt", "pre code", "header button", ".commands button", "footer p", ".finder label"),
    *(".finder .note", ".finder li[aria-selected=true] span", ".finder li[aria-selected=true] b", ".finder li b"),
    *(".pair blockquote", "#pair_facts dt", "#pair_chart text", "#pair_chart .value", ".legend span", ".turn button"),
)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    return write_page(some_page(), tmp_path_factory.mktemp("page") / "report #1.html")


@pytest.mark.parametrize(
    ("look", "scheme"),
    [
        pytest.param({}, "light", id="1280"),
        pytest.param({"width": 700}, "dark", id="700", marks=pytest.mark.slow),
        pytest.param(PHONE, "light", id="390", marks=pytest.mark.slow),
        pytest.param({**PHONE, "width": 320}, "dark", id="320"),
    ],
)
def test_quiet_drawn_and_inside_the_window(browser, page_file, look, scheme):
    with opened(browser, page_file, scheme=scheme, **look) as (tab, log):
        boxes = tab.evaluate(
            "[...document.querySelectorAll('figure svg, #pair_chart svg')].map(e => e.getBoundingClientRect())"
            ".map(b => [b.left, b.right, b.width, b.height])"
        )
        assert len(boxes) == 6
        width = tab.evaluate("innerWidth")
        assert width == look.get("width", 1280)
        assert all(left >= 0 and right <= width and w > 100 and h > 50 for left, right, w, h in boxes)
        assert fits(tab)
        assert log.problems == []
        assert log.requests == [page_file.resolve().as_uri()]


OVERLAPS = """[...document.querySelectorAll('.commands > div')].map(box => {
  const [pre, button] = ['pre', 'button'].map(name => box.querySelector(name).getBoundingClientRect());
  return button.left < pre.right || Math.abs(button.top - pre.top) > 20;
})"""
UNTOLD = """[...document.querySelectorAll('body *')].filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 1)
  .map(e => [e, getComputedStyle(e)]).filter(([, style]) => style.overflowX !== 'visible')
  .filter(([, style]) => style.textOverflow !== 'ellipsis' && !style.backgroundImage.includes('gradient'))
  .map(([e]) => e.outerHTML.slice(0, 80))"""


def test_on_a_phone_nothing_is_cut_off_without_a_cue(browser, tmp_path):
    """What is wider than its box ends in an ellipsis or a shade; commands wrap, with their button beside them."""
    commands = ("layerwise report default --pairs a/long/path/to/pairs.csv --against another-model -o report.html",)
    file = write_page(some_page(commands=commands), tmp_path / "page.html")
    with opened(browser, file, **{**PHONE, "width": 375}) as (tab, log):
        assert fits(tab)
        assert tab.evaluate(UNTOLD) == []
        assert tab.evaluate(OVERLAPS) == [False]
        assert tab.evaluate("[...document.querySelectorAll('pre')].every(e => e.scrollWidth <= e.clientWidth)")
        assert tab.evaluate("document.querySelectorAll('.scroll').length") > 0
        assert log.problems == []


def test_explorer_shows_the_recommended_set(browser, tmp_path):
    explorer = some_explorer()
    used = np.round(explorer.similarities[:, 5], 3)
    apart = replace(explorer, recommended="5 @ mean", recommended_similarities=used)
    file = write_page(some_page(explorer=apart), tmp_path / "page.html")
    with opened(browser, file) as (tab, log):
        number = int(tab.evaluate("document.querySelector('#pair_list [aria-selected=true]').dataset.pair"))
        assert f"Recommended 5 @ mean{used[number]:.3f}" in text(tab, "#pair_facts")
        hover(tab, "#pair_chart .point:last-child")
        assert shown_tooltip(tab).endswith(f"\nrecommended 5 @ mean: {used[number]:.3f}")
        tab.select_option("#pair_order", label="recommended against last layer, largest change first")
        first = int(tab.evaluate("document.querySelector('#pair_list li').dataset.pair"))
        assert first == int(np.argmax(np.abs(used - np.round(explorer.similarities[:, -1], 3))))
        assert log.problems == []
    file = write_page(some_page(explorer=replace(explorer, recommended=explorer.mix_name)), tmp_path / "own.html")
    with opened(browser, file) as (tab, _):
        assert "Mix 3-8 (recommended)" in text(tab, "#pair_facts")
        assert "mix 3-8 (recommended)" in text(tab, "#pair_legend")


def test_hostile_words_do_not_run(browser, tmp_path):
    file = write_page(some_page(title=HOSTILE, answer=(HOSTILE,)), tmp_path / "page.html")
    with opened(browser, file, **PHONE) as (tab, log):
        tab.select_option("#pair_order", "7")
        assert text(tab, "#pair_left") == HOSTILE  # the first of the file
        assert text(tab, "h1") == HOSTILE
        assert tab.evaluate("document.title") == HOSTILE
        assert fits(tab)
        assert log.problems == []


def test_a_script_inside_a_drawing_is_not_run(browser, tmp_path):
    """The drawings are trusted, but should one carry a script all the same, the policy stops it."""
    page = some_page()
    section = page.sections[0]
    svg = "<svg viewBox='0 0 1 1' onload=\"document.title='owned'\"><script>document.title='owned'</script></svg>"
    figures = (replace(section.figures[0], svg=svg),)
    file = write_page(some_page(sections=(replace(section, figures=figures),)), tmp_path / "page.html")
    with opened(browser, file) as (tab, log):
        assert tab.evaluate("document.title") == page.title
        assert any("Content Security Policy" in problem for problem in log.problems)  # and the driver notices


@pytest.mark.parametrize("look", [pytest.param({}, id="wide"), pytest.param(PHONE, id="phone", marks=pytest.mark.slow)])
def test_dark_is_dark_and_all_text_has_contrast(browser, page_file, look):
    colours = {}
    for scheme in ("light", "dark"):
        with opened(browser, page_file, scheme=scheme, **look) as (tab, _):
            colours[scheme] = tab.evaluate(
                "[getComputedStyle(document.documentElement)].map(s => [s.backgroundColor, s.color])[0]"
            )
            ratios = {each: tab.evaluate(CONTRAST, each) for each in TEXTS}
            assert {each: ratio for each, ratio in ratios.items() if ratio < 4.5} == {}
    assert colours["light"][0] != colours["dark"][0]
    assert colours["light"][1] != colours["dark"][1]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
def test_the_toggle_changes_the_theme_and_it_is_kept(browser, page_file, scheme):
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    other = {"light": "dark", "dark": "light"}[scheme]
    with opened(browser, page_file, scheme=scheme) as (tab, log):
        before = tab.evaluate(paper)
        tab.click("#theme_button")
        assert tab.evaluate("document.documentElement.dataset.theme") == other
        assert tab.evaluate(paper) != before
        open_file(tab, page_file)
        assert tab.evaluate("document.documentElement.dataset.theme") == other
        assert text(tab, "#theme_button").lower() == scheme
        tab.click("#theme_button")
        assert tab.evaluate(paper) == before
        tab.evaluate("localStorage.clear()")
        assert log.problems == []


def test_no_storage_is_no_error(browser, page_file):
    with opened(browser) as (tab, log):
        source = (
            "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no', 'SecurityError') }})"
        )
        tab.add_init_script(source)
        open_file(tab, page_file)
        tab.click("#theme_button")
        assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
        assert log.problems == []


def test_tables_sort_by_click_and_key(browser, page_file):
    def sorting(number):
        return tab.evaluate(f"document.querySelectorAll('#measures thead th')[{number}].getAttribute('aria-sort')")

    with opened(browser, page_file) as (tab, _):
        tab.click("#measures thead th:nth-child(6) button")
        ranks = [float(cell.replace(",", "")) for cell in column(tab, 5)]
        assert ranks == sorted(ranks)  # 1,203.4 is the largest: as text it would come first
        assert sorting(5) == "ascending"
        tab.keyboard.press("Enter")
        assert [float(cell.replace(",", "")) for cell in column(tab, 5)] == ranks[::-1]
        assert sorting(5) == "descending"
        tab.evaluate("document.querySelector('#measures thead th:nth-child(7) button').focus()")
        for direction in ("ascending", "descending"):
            tab.keyboard.press("Space")
            assert sorting(6) == direction
            assert sorting(5) is None
            assert column(tab, 6)[-1] == "–"  # what is missing comes last either way
        tab.click("#measures thead th:nth-child(1) button")
        assert column(tab, 0) == [str(layer) for layer in range(13)]  # numbers in texts count as numbers
        tab.click("#measures thead th:nth-child(5) button")
        assert column(tab, 4)[0] == "−2.000"


def test_tooltips_by_hover_focus_and_tap(browser, page_file):
    with opened(browser, page_file) as (tab, _):
        assert shown_tooltip(tab) is None
        hover(tab, "#layers .point[data-label^='layer 4:']")
        assert shown_tooltip(tab) == "layer 4: 62.40"
        hover(tab, "#layers h2")
        assert shown_tooltip(tab) is None
        tab.evaluate("document.querySelector('#layers .point').focus()")
        assert shown_tooltip(tab) == "layer 0: 41.20"
        tab.keyboard.press("ArrowRight")
        assert shown_tooltip(tab) == "layer 1: 52.80"
        box = tab.evaluate(
            "[document.querySelector('.tooltip').getBoundingClientRect()].map(b => [b.left, b.top, b.right])[0]"
        )
        assert box[0] >= 0
        assert box[1] >= 0
        tab.keyboard.press("Escape")
        assert shown_tooltip(tab) is None
        hover(tab, "#smoothing .point[data-label='layers 3 and 5: 0.85']")
        assert shown_tooltip(tab) == "layers 3 and 5: 0.85"
        hover(tab, "#measures thead th:nth-child(2) button")
        assert shown_tooltip(tab).startswith("Rank correlation")
        stops = tab.evaluate("document.querySelectorAll('figure .point[tabindex=\"0\"]').length")
        assert tab.evaluate("document.querySelectorAll('.point title').length") == 0  # else two tooltips
        assert stops == tab.evaluate("document.querySelectorAll('figure').length")  # one Tab stop in each drawing
    with opened(browser, page_file, **PHONE) as (tab, _):
        tap(tab, "#layers .point[data-label^='layer 12:']")
        assert shown_tooltip(tab) == "layer 12: 49.70"
        assert tab.evaluate("document.querySelector('.tooltip').getBoundingClientRect().right <= innerWidth")
        assert fits(tab)


def test_explorer_shows_the_chosen_pair(browser, page_file):
    explorer = some_explorer()
    chart = "document.querySelector('#pair_chart path.own').getAttribute('d')"
    with opened(browser, page_file) as (tab, log):
        first = (text(tab, "#pair_left"), tab.evaluate(chart))
        tab.click("#pair_list li:nth-child(3)")
        second = (text(tab, "#pair_left"), tab.evaluate(chart))
        assert second[0] != first[0]
        assert second[1] != first[1]
        number = int(tab.evaluate("document.querySelector('#pair_list [aria-selected=true]').dataset.pair"))
        assert second[0] == explorer.pairs[number][0]
        assert text(tab, "#pair_right") == explorer.pairs[number][1]
        assert f"Grade{explorer.pairs[number][2]:g}" in text(tab, "#pair_facts")
        assert f"{explorer.similarities[number, -1]:.3f}" in text(tab, "#pair_facts")
        hover(tab, "#pair_chart .point[data-label^='layer 5:']")
        others = (explorer.similarities[:, 5].sum() - explorer.similarities[number, 5]) / (len(explorer.pairs) - 1)
        assert (
            shown_tooltip(tab) == f"layer 5: {explorer.similarities[number, 5]:.3f}\nmean of the others: {others:.3f}"
        )
        hover(tab, "#pair_chart .point:last-child")
        assert shown_tooltip(tab) == f"mix 3-8: {explorer.mix_similarities[number]:.3f}"
        tab.evaluate("document.querySelector('#pair_list').focus()")
        tab.keyboard.press("ArrowUp")
        tab.keyboard.press("ArrowUp")
        assert (text(tab, "#pair_left"), tab.evaluate(chart)) == first
        tab.keyboard.press("End")
        assert tab.evaluate("document.querySelector('#pair_list li:last-child').ariaSelected") == "true"
        tab.click("#pair_previous")
        assert tab.evaluate("document.querySelector('#pair_list li:nth-last-child(2)').ariaSelected") == "true"
        assert log.problems == []


def some_terms(*, layers=2):
    """Why pair 1 has its cosine, with hostile words."""
    names = [f"{layer} @ mean" for layer in range(layers)]
    words = (Column("word of A", "text"), Column("word of B", "text"), Column("adds", digits=4))
    heads = (Column("layer of A, of B:", "text"), *(Column(name, digits=4) for name in names))
    return PairTerms(
        left=[("rain", 0.41234), (HOSTILE, -0.2)],
        right=[("river", 0.21234)],
        by_word=Table(words, (("rain", "river", 0.41234), ("1 other pair", "", -0.2))),
        by_layer=Table(heads, tuple((name, *[0.25 / layers**2] * layers) for name in names)) if layers > 1 else None,
        cosine=0.21234,
        total=0.21234,
        residual=-1.8e-9,
    )


def explained_page(path, **options):
    explained = ExplainedPairs({1: some_terms(**options)})
    return write_page(some_page(explorer=replace(some_explorer(), explained=explained)), path)


def choose_explained(tab):
    tab.select_option("#pair_order", label="as in the file")
    assert tab.is_hidden("#pair_terms")  # pair 0 is not explained
    tab.click("#pair_next")
    assert tab.is_visible("#pair_terms")


def cells(tab, selector):
    rows = f"[...document.querySelectorAll('{selector} tr')]"
    return tab.evaluate(f"{rows}.map(row => [...row.cells].map(cell => cell.textContent))")


def test_the_chosen_pair_is_explained_by_words_and_layers(browser, tmp_path):
    with opened(browser, explained_page(tmp_path / "page.html")) as (tab, log):
        choose_explained(tab)
        assert text(tab, "#pair_sums") == "cosine 0.2123; the terms sum to 0.2123, residual -1.8e-09"
        assert text(tab, "#pair_words_right").strip() == "river"
        colours = tab.evaluate(
            "[...document.querySelectorAll('.words span')]"
            ".map(e => [e.dataset.tip, getComputedStyle(e).backgroundColor])"
        )
        assert [tip for tip, _ in colours] == ["+0.4123", "−0.2000", "+0.2123"]
        assert len({colour for _, colour in colours}) == 3
        hover(tab, "#pair_words_left span")
        assert shown_tooltip(tab) == "+0.4123"
        assert cells(tab, "#pair_by_word") == [
            ["word of A", "word of B", "adds"],
            ["rain", "river", "+0.4123"],
            ["1 other pair", "", "−0.2000"],
        ]
        assert cells(tab, "#pair_by_layer") == [
            ["layer of A, of B:", "0 @ mean", "1 @ mean"],
            ["0 @ mean", "+0.0625", "+0.0625"],
            ["1 @ mean", "+0.0625", "+0.0625"],
        ]
        note = " ".join(text(tab, "#pair_terms .note").split())
        assert "the terms shown are rounded to 4 decimals. Tokens are contextual" in note
        assert log.problems == []
    with opened(browser, explained_page(tmp_path / "one.html", layers=1)) as (tab, log):
        choose_explained(tab)
        assert tab.is_visible("#pair_by_word")
        assert tab.is_hidden("#pair_by_layer")
        assert log.problems == []


TERMS = ("#pair_terms h3", "#pair_sums", "#pair_terms .note", ".side > span", "#pair_terms thead th", "#pair_terms td")


@pytest.mark.parametrize(("look", "scheme"), [({}, "light"), ({**PHONE, "width": 320}, "dark")], ids=["1280", "320"])
def test_an_explanation_can_be_read_at_any_width(browser, tmp_path, look, scheme):
    with opened(browser, explained_page(tmp_path / "page.html", layers=8), scheme=scheme, **look) as (tab, log):
        choose_explained(tab)
        assert fits(tab)
        assert tab.evaluate(UNTOLD) == []
        words = ("#pair_words_left span", "#pair_words_left span:last-child", "#pair_words_right span")
        ratios = {each: tab.evaluate(CONTRAST, each) for each in (*TERMS, *words)}
        assert {each: ratio for each, ratio in ratios.items() if ratio < 4.5} == {}
        assert log.problems == []


def test_a_refusal_is_on_the_page_with_its_reason(browser, tmp_path):
    explorer = replace(some_explorer(), explained=ExplainedPairs(reason=f"{HOSTILE} takes no sum"))
    with opened(browser, write_page(some_page(explorer=explorer), tmp_path / "page.html")) as (tab, log):
        assert tab.is_visible("#pair_reason")
        assert tab.is_hidden("#pair_terms")
        assert " ".join(text(tab, "#pair_reason").split()).endswith(f"is not shown. {HOSTILE} takes no sum.")
        assert log.problems == []


def test_explorer_orders_and_searches(browser, page_file):
    explorer = some_explorer()
    gold = [pair[2] for pair in explorer.pairs]
    listed = "[...document.querySelectorAll('#pair_list li')].map(item => Number(item.dataset.pair))"

    def order_by(words):
        tab.select_option("#pair_order", label=words)
        return tab.evaluate(listed)

    with opened(browser, page_file) as (tab, log):
        apart = np.abs(rankdata(gold) - rankdata(np.round(explorer.mix_similarities, 3)))
        assert len(set(gold)) < len(gold)  # some share their ranks
        assert apart[tab.evaluate(listed)].tolist() == sorted(apart, reverse=True)
        assert [gold[i] for i in order_by("grade, highest first")] == sorted(gold, reverse=True)
        assert order_by("as in the file") == list(range(len(gold)))
        tab.evaluate("document.querySelector('#pair_search').focus()")
        tab.keyboard.insert_text("RIVER town")
        wanted = [
            i
            for i, (left, right, _) in enumerate(explorer.pairs)
            if all(w in left + "\n" + right for w in ("river", "town"))
        ]
        assert 0 < len(wanted) < len(gold)
        assert tab.evaluate(listed) == wanted
        tab.keyboard.press("ArrowDown")
        assert text(tab, "#pair_left") == explorer.pairs[wanted[1]][0]
        tab.keyboard.insert_text(" zebra")
        assert tab.evaluate(listed) == []
        assert text(tab, "#pair_count") == "None of 60 pairs has these words"
        assert log.problems == []


@pytest.mark.slow
def test_a_thousand_pairs_of_two_models_without_grades(browser, tmp_path):
    explorer = some_explorer(1000, graded=False, second=True)
    file = write_page(some_page(explorer=explorer), tmp_path / "page.html")
    with opened(browser, file) as (tab, log):
        assert tab.evaluate("document.querySelectorAll('#pair_list li').length") == 1000
        assert tab.evaluate("document.querySelector('#pair_order').options[0].text").startswith(
            "mix against last layer"
        )
        assert "Grade" not in text(tab, "#pair_facts")
        assert "trained <i>" in text(tab, "#pair_legend")
        hover(tab, "#pair_chart .point[data-label^='layer 12:']")
        assert "trained <i>, layer 6: " in shown_tooltip(tab)
        took = tab.evaluate(
            "(() => {const began = performance.now(); const s = document.querySelector('#pair_search');"
            "s.value = 'river'; s.dispatchEvent(new Event('input')); return performance.now() - began})()"
        )
        assert took < 1000
        assert log.problems == []


def test_missing_values_break_the_line_only(browser, tmp_path):
    nan = float("nan")
    pairs = [("a", "b", nan), ("c", "d", 1.0)]
    explorer = Explorer(pairs, ["0", "1", "2"], [[0.1, nan, 0.3], [nan, nan, nan]], "0-2", [nan, 0.2])
    file = write_page(some_page(explorer=explorer), tmp_path / "page.html")
    with opened(browser, file) as (tab, log):
        drawn = []
        for number in (1, 2):
            tab.click(f"#pair_list li:nth-child({number})")
            drawn.append(tab.evaluate("document.querySelector('#pair_chart path.own').getAttribute('d')"))
        assert sorted(path.count("M") for path in drawn) == [0, 2]
        assert "NaN" not in tab.evaluate("document.querySelector('#pairs').innerHTML")
        assert log.problems == []


@pytest.mark.slow
def test_contents_follow_the_reader_on_wide_screens(browser, page_file):
    with opened(browser, page_file) as (tab, _):
        assert text(tab, ".contents a[aria-current]") == "Answer"
        scroll_to(tab, "#measures h2")
        tab.evaluate("document.querySelector('#measures').scrollIntoView()")
        tab.wait_for_function("document.querySelector('.contents a[aria-current]').hash === '#measures'")
        assert tab.evaluate("document.querySelector('.contents').getBoundingClientRect().top") == 0
    with opened(browser, page_file, **PHONE) as (tab, _):
        assert tab.evaluate("getComputedStyle(document.querySelector('.contents')).display") == "none"


def test_readable_without_script(browser, page_file):
    with opened(browser, page_file, java_script_enabled=False) as (tab, log):
        words = tab.inner_text("body")
        assert "14.9 points better" in words
        assert "Choosing pairs needs JavaScript" in words
        assert "Previous pair" not in words
        assert tab.locator("button").count() == 3  # theme and two of pairs, all hidden
        assert log.problems == []


def test_printing_is_on_white_paper(browser, page_file):
    with opened(browser, page_file, scheme="dark") as (tab, _):
        tab.emulate_media(media="print", color_scheme="dark")
        assert tab.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
        assert tab.evaluate("getComputedStyle(document.querySelector('#pairs')).display") == "none"
        for moment, theme in (("beforeprint", "light"), ("afterprint", None)):
            tab.evaluate(f"dispatchEvent(new Event('{moment}'))")
            assert tab.evaluate("document.documentElement.dataset.theme ?? null") == theme


def test_the_driver_notices_errors_and_requests(browser, tmp_path):
    file = tmp_path / "bad.html"
    file.write_text("<img src='missing.png'><script>console.error('said'); throw new Error('thrown')</script>")
    with opened(browser, file) as (tab, log):
        found = "\n".join(log.problems)
        assert "thrown" in found
        assert "said" in found
        assert len(log.requests) == 2
        with pytest.raises(Error, match="ReferenceError"):
            tab.evaluate("nothing_of_this_name")
