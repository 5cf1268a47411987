"""`layerwise explain`: what is printed, JSON, the HTML file, mistakes, and texts from strangers."""

import re

import numpy as np
import pytest

from layerwise.errors import printable
from layerwise.explain import ExplainedText, Explanation, explain_pair
from layerwise.report import explanation_html
from support.commands import assert_one_line, call, call_json, run_main

LEFT, RIGHT = "The river rose after rain.", "Who left the old door open?"
HOSTILE = "\x1b[2J\x1b]0;x\x07 red\r\x9b31m [bold]rain[/bold] <script>alert(1)</script> \u202etxt \x7f"


@pytest.fixture
def pair(tiny_bert):
    return tiny_bert, LEFT, RIGHT, "--device", "cpu"


def test_words_and_layers_are_shown_with_the_residual(pair, tiny_layers):
    shown = call("explain", *pair, "--layers", "1,4", "--top", 3)
    result = explain_pair(tiny_layers.with_mix("1,4"), LEFT, RIGHT)
    assert f"1,4 @ mean\ncosine {result.cosine:.4f}; the terms sum to {result.cosine:.4f}, residual" in shown
    one, other = result.top_words(1)[0]
    largest = rf"{re.escape(result.left.words[one])} +{re.escape(result.right.words[other])} +"
    assert re.search(largest + re.escape(f"{result.by_word[one, other]:+.4f}"), shown)
    assert f"{result.by_word.size - 3} other pairs" in shown
    assert f"{result.by_view[0, 1]:+.4f}" in shown
    assert "Tokens are contextual" in shown
    assert "The  river  rose" in shown


def test_rows_of_the_table_sum_to_the_cosine(pair):
    shown = call("explain", *pair, "--top", 4)
    cosine = float(re.search(r"cosine (\S+);", shown)[1])
    table = shown[shown.index("word of A") : shown.index("Tokens are")]
    assert sum(map(float, re.findall(r"[+-]0\.\d{4}", table))) == pytest.approx(cosine, abs=3e-4)


def test_many_layers_are_shown_by_their_largest_terms(pair):
    mix = "views(0-4 @ mean; 0-4 @ cls; unit)"
    shown = call("explain", *pair, "--layers", mix, "--top", 2)
    assert "98 other pairs" in shown
    assert re.search(r"\d @ (mean|cls) +\d @ (mean|cls) +\+0", shown)


def test_words_of_several_prompts_are_named_by_them(pair):
    shown = call("explain", *pair, "--layers", 'views(1 @ mean; 4 @ last in "Topic: {text}")', "--top", 400)
    assert '[SEP] (in "Topic: {text}")' in shown


def test_json_has_every_sum(pair):
    facts = call_json("explain", *pair, "--layers", "1,4")
    assert facts["views"] == ["1 @ mean", "4 @ mean"]
    assert facts["left"]["words"] == ["[CLS]", "The", "river", "rose", "after", "rain", ".", "[SEP]"]
    assert abs(facts["residual"]) < 1e-6
    for name in ("by_word", "by_token", "by_view"):
        assert np.sum(facts[name]) == pytest.approx(facts["cosine"], abs=1e-6)


def test_the_page_holds_words_layers_and_the_command(pair, tmp_path):
    out = tmp_path / "new" / "why.html"
    assert f"wrote {out}" in call("explain", *pair, "--layers", "1,4", "-o", out)
    page = out.read_text(encoding="utf-8")
    assert "Tokens are contextual" in page
    assert "residual" in page
    assert page.count("<td") == 8 * 9 + 4
    assert "layerwise explain" in page
    assert "<script" not in page


def test_a_page_of_long_texts_sums_up_the_small_words():
    random = np.random.default_rng(0)
    words = tuple(f"word{number}" for number in range(80))
    sides = [
        ExplainedText(
            "a text", words[:count], words[:count], ("",) * count, np.arange(count), random.normal(size=(1, count, 4))
        )
        for count in (80, 60)
    ]
    page = explanation_html(Explanation("m", "6 @ mean", ("6 @ mean",), *sides, 0.5))
    assert page.count("<td") == 60 * 60 + 1
    assert "21 others" in page
    cells = page[page.index("Word by word") : page.index("Layer by layer")]
    numbers = [float(text.replace("−", "-").replace(",", "")) for text in re.findall(r">([−\d.,]+)</td>", cells)]
    assert sum(numbers) == pytest.approx(explained_total(sides), abs=0.1)


def explained_total(sides):
    left, right = (side.vectors.sum((0, 1)) for side in sides)
    return float(left @ right)


def test_texts_of_strangers_are_shown_and_not_obeyed(pair, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = tmp_path / "why.html"
    for options in ((), ("--json",), ("-o", out)):
        shown = call("explain", pair[0], HOSTILE, RIGHT, *pair[3:], *options)
        plain = re.sub(r"\x1b\[[\d;]*m", "", shown)  # our colours
        assert not [char for char in plain if char != "\n" and printable(char) != char]
    assert "<script" not in out.read_text(encoding="utf-8")
    assert "&lt;" in out.read_text(encoding="utf-8")


def test_a_terminal_shows_colours(pair, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in call("explain", *pair)


MISTAKES = {
    "--layers max": "'max' is not a layer",
    "--layers 9": "There is no layer 9",
    "--layers last@max": "max takes each dimension from another token",
    "--layers wk(start=1)": "SBERT-WK computes the weights",
    "--top 0": "--top 0: give 1 or more",
    "-o why.txt": "why.txt: an explanation is an HTML file; name one that ends in .html",
    "--backend onnx": "use the torch backend",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(monkeypatch, capfd, pair, words):
    assert_one_line(*run_main(monkeypatch, capfd, "explain", *pair, *words.split()), MISTAKES[words])


def test_a_missing_model_is_told_at_once(monkeypatch, capfd, tmp_path):
    assert_one_line(*run_main(monkeypatch, capfd, "explain", tmp_path / "none", "a", "b"), "none")


@pytest.mark.parametrize(("texts", "name"), [(("", "b"), "TEXT_A"), (("a", " "), "TEXT_B")])
def test_an_empty_text_is_refused(monkeypatch, capfd, pair, texts, name):
    said = run_main(monkeypatch, capfd, "explain", pair[0], *texts)
    assert_one_line(*said, f"{name} is empty; give a sentence, in quotes where it holds spaces")
