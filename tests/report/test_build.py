"""What a report says: sentences and numbers from what was measured, every figure drawn, two models told apart."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers as hf
from scipy.stats import rankdata, spearmanr

from layerwise.data import pairs_in_memory
from layerwise.encoder import named_prompt
from layerwise.errors import InputError, MixError
from layerwise.evaluate import gain_on_pairs
from layerwise.evidence import Gain, Verdict
from layerwise.explain import check_linear, explain_pair
from layerwise.measures import (
    MEASURES,
    AttentionWeights,
    ChosenLayers,
    Curve,
    Geometry,
    LayerScores,
    MixScore,
    ModelOnPairs,
    PairSimilarities,
    SetSim,
    TokenMatrices,
    TokSim,
    measure_attention,
    measure_layer_scores,
    reporting_rows,
    short_names,
)
from layerwise.metrics import cosine
from layerwise.mixes import Attention, parse_mix
from layerwise.model import LayerModel
from layerwise.plots import DARK, inline_svg
from layerwise.postprocess import FittedOn
from layerwise.report import (
    ReportData,
    build_page,
    command_line,
    measure_model,
    measure_trainings,
    measure_views,
    report_data,
)
from layerwise.report.answer import answer, headline
from layerwise.report.build import layer_table, pair_explorer, section, sections
from layerwise.report.page import explorer_data, page_html
from layerwise.report.pair_words import explained_pairs
from layerwise.report.smoothing import smoothing_answer
from layerwise.search import Scored
from layerwise.train import load_recipe
from support.attention import network_of
from support.sample_page import some_page
from support.text_pairs import some_pairs
from support.tiny import DEPTH, WIDTH, tiny_tokenizer
from support.training import encoder_of, recipe, save_dev, texts, train_recipe

SURE = Gain(8.25, 5.81, 10.83, 0.001)
UNSURE = Gain(0.31, -0.42, 1.04, 0.4)
NONE = Gain(-0.2, -1.5, 0.9, 0.7)


@pytest.fixture(scope="module")
def found(tiny_layers):
    return measure_model(ModelOnPairs(tiny_layers, some_pairs(), cache=False), "models/tiny")


@pytest.fixture(scope="module")
def shallow(tmp_path_factory):
    """Another model: two blocks instead of four."""
    folder = tmp_path_factory.mktemp("two") / "shallow"
    torch.manual_seed(4)
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    hf.BertModel(hf.BertConfig(vocab_size=len(tiny_tokenizer()), **sizes)).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return measure_model(
        ModelOnPairs(LayerModel.load(folder, device="cpu"), some_pairs(), cache=False), "models/shallow"
    )


@pytest.fixture(scope="module")
def both(found, shallow):
    return report_data(found, shallow)


@pytest.fixture(scope="module")
def pages(found, both):
    """The reports of one model and of two: drawing is most of a report's time."""
    return build_page(ReportData(found)), build_page(both)


@pytest.fixture(scope="module")
def ungraded(tiny_layers):
    pairs = some_pairs(12)
    return measure_model(ModelOnPairs(tiny_layers, pairs_in_memory(pairs.left, pairs.right), cache=False), "tiny")


def with_value(results, name, value):
    """Results with another value of a measure, or without it."""
    values = {key: old for key, old in results.values.items() if key != name}
    return replace(results, values=values if value is None else values | {name: value})


def with_choice(found, best, gain, *, last="4 @ mean", front=(), shares=(0, 1, 0, 0.5, 0)):
    """`found` with a made-up search: the last layer has 44.12, the best 44.12 and the gain."""
    both = Scored(parse_mix(best), 0.5, 0.4412 + gain.mean / 100), Scored(parse_mix(last), 0.4, 0.4412)
    small = Gain(gain.mean / 100, gain.low / 100, gain.high / 100, gain.p_value)
    verdict = Verdict(*both, small, 300)
    chosen = replace(
        found.get(ChosenLayers),
        verdict=verdict,
        test_pairs=150,
        best=MixScore("best found", best, both[0].layers[-1], 50.0, 44.12 + gain.mean),
        last=MixScore("last layer", last, DEPTH, 40.0, 44.12),
        gain=gain,
        blocks=verdict.use.layers[-1],
        all_blocks=DEPTH,
        front=tuple(MixScore("front", mix, count, 0.0, test) for mix, count, test in front),
        shares=np.array(shares, dtype=float),
    )
    return replace(with_value(found, "chosen", chosen), name="tiny")


def test_a_sure_gain_with_fewer_blocks(found):
    first, second = answer(ReportData(with_choice(found, "1,3 @ mean", SURE)))
    assert first == "Use layers 1,3 @ mean: +8.2 [+5.8, +10.8] (95 %) over the last layer on unseen pairs."
    assert second == (
        "On the 150 pairs that did not choose, the last layer has 44.1 (Spearman × 100), the best found, 1,3 @ mean, "
        "52.4; the best found runs 3 of 4 blocks, 25 % fewer."
    )


def test_one_layer_is_spoken_of_as_one(found):
    assert answer(ReportData(with_choice(found, "2 @ mean", SURE)))[0].startswith("Use layer 2 @ mean: +8.2 ")


def test_a_sure_gain_with_all_blocks_names_a_cheaper_set(found):
    enough, little = ("0-1 @ mean", 1, 44.12 + 4.2), ("0 @ mean", 0, 44.12 + 4.0)  # half of the gain is 4.125
    told = with_choice(found, "1,4 @ mean", SURE, front=(little, enough))
    assert answer(ReportData(told))[1].endswith("runs all 4 blocks, while 0-1 @ mean runs only 1 and has 48.3.")
    told = with_choice(found, "1,4 @ mean", SURE, front=(("0 @ mean", 0, 49.6), enough))
    assert answer(ReportData(told))[1].endswith("while 0 @ mean runs none of them and has 49.6.")
    told = with_choice(found, "1,4 @ mean", SURE, front=(little,))
    assert answer(ReportData(told))[1].endswith("runs all 4 blocks, and no set with fewer has half of its gain.")


def test_no_sure_gain_is_not_called_better(found):
    first, second = answer(ReportData(with_choice(found, "0,4 @ mean", UNSURE, front=(("3 @ mean", 3, 44.0),))))
    assert first == (
        "Keep the last layer. No combination is reliably better on your 300 pairs (best found +0.3, 95 % −0.4 to +1.0)."
    )
    assert second.endswith("the last layer runs all 4 blocks, and no set with fewer equals it.")
    cheap = with_choice(found, "0,4 @ mean", UNSURE, front=(("3 @ mean", 3, 44.2),))
    assert answer(ReportData(cheap))[1].endswith("while 3 @ mean runs only 3 and has 44.2.")
    surely_worse = Gain(-2.0, -3.0, -1.0, 0.001)
    assert answer(ReportData(with_choice(found, "0,4 @ mean", surely_worse)))[0].startswith("Keep the last layer. ")


def test_the_last_layer_may_be_the_best(found):
    first, second = answer(ReportData(with_choice(found, "4 @ mean", NONE)))
    assert first == "Keep the last layer: it is the best found on your 300 pairs."
    assert "the last layer has 44.1 (Spearman × 100); the last layer runs all 4 blocks" in second


def test_texts_that_the_model_has_seen_are_told_of(found):
    texts = found.subject.pairs.texts
    records = [
        FittedOn.of(texts[:10], source="mine", what="layers"),
        FittedOn.of(["other"], source="wiki", what="encoder"),
    ]
    model = found.subject.model.replaced(fitted_on=records)
    seen = replace(found, subject=replace(found.subject, model=model), name="tiny")
    *_, said = answer(ReportData(seen))
    share = 100 * 10 / len(texts)
    assert said == f"tiny has seen texts of these pairs, {share:.0f} % by its layers (mine): its scores are too good."
    assert len(answer(ReportData(found))) == 2


def test_without_grades_or_with_few_pairs_nothing_is_said_of_layers(found, ungraded):
    first, second = answer(ReportData(ungraded))
    assert first == "Which layers of tiny are best cannot be said: the pairs have no grades."
    tokens, cone = ungraded.get(TokSim).means[-1], ungraded.get(Geometry).anisotropy[-2]
    assert f"tokens have a cosine of {tokens:.2f}, and two random sentences one of {cone:.2f}" in second
    few = with_value(found, "chosen", None)
    assert answer(ReportData(few))[0].endswith("cannot be said: the pairs are fewer than 20.")
    assert headline(ReportData(few))[0].label == "layers"


def two(found, gain):
    scores = found.get(LayerScores)
    old = with_value(found, "scores", replace(scores, mix_score=60.0))
    new = with_value(found, "scores", replace(scores, mix_score=60.0 + gain.mean))
    return ReportData(replace(new, name="new"), replace(old, name="old"), gain)


def test_two_models_better_worse_or_neither(found):
    assert answer(two(found, SURE))[0] == (
        "new is better than old: 68.2 against 60.0 (Spearman × 100), +8.2 (95 % interval +5.8 to +10.8)."
    )
    worse = answer(two(found, Gain(-8.25, -10.83, -5.81, 0.001)))[0]
    assert worse == ("new is worse than old: 51.8 against 60.0 (Spearman × 100), −8.2 (95 % interval −10.8 to −5.8).")
    assert answer(two(found, UNSURE))[0] == (
        "new and old cannot be told apart on these pairs: 60.3 against 60.0 (Spearman × 100), a difference of +0.3 "
        "(95 % interval −0.4 to +1.0)."
    )
    facts = headline(two(found, SURE))
    assert (facts[0].label, facts[0].value) == ("against old", "+8.2")
    assert len(facts) == 4


def test_two_models_without_grades(ungraded):
    other = replace(ungraded, path="other")
    gathered = report_data(ungraded, other)
    assert gathered.gain is None
    tokens = ungraded.get(TokSim).means[-1]
    assert answer(gathered)[0] == (
        f"tiny and other are set side by side without grades: the tokens of a sentence have a cosine of {tokens:.2f} "
        f"in the last layer of the one and {tokens:.2f} in that of the other."
    )
    assert "cannot be said" in answer(gathered)[1]


def test_cards_hold_the_numbers(found):
    facts = headline(ReportData(with_choice(found, "1,3 @ mean", SURE)))
    assert [fact.value for fact in facts] == ["1,3 @ mean", "+8.2", "very sure it is better", "3 of 4"]
    halves = f"halves of the pairs share {100 * found.get(ChosenLayers).agreement:.0f} % of their layers"
    assert facts[2].note == f"p = 0.001; {halves}"
    kept = headline(ReportData(with_choice(found, "1,3 @ mean", UNSURE)))
    assert [fact.value for fact in kept][:3] == ["the last layer", "+0.3", "not sure it is better"]
    assert kept[0].label == "use", "the verdict is on the first card"
    for p_value, words, shown in ((0.0004, "very sure", "p < 0.001"), (0.03, "sure", "p = 0.03")):
        card = headline(ReportData(with_choice(found, "1,3 @ mean", replace(SURE, p_value=p_value))))[2]
        assert (card.value, card.note) == (f"{words} it is better", f"{shown}; {halves}")
    worse = replace(SURE, mean=-SURE.mean, low=-SURE.high, high=-SURE.low)
    assert headline(ReportData(with_choice(found, "1,3 @ mean", worse)))[2].value == "sure it is not better"


def test_the_explorer_shows_the_set_that_is_recommended(found):
    chosen = with_choice(found, "1,3 @ mean", SURE)
    explorer = pair_explorer(ReportData(chosen))
    views = found.subject.pooled("mean")
    expected = cosine(*found.subject.sides((views[:, 1] + views[:, 3]) / 2))
    assert explorer.recommended == str(chosen.get(ChosenLayers).verdict.use.mix) == "1,3 @ mean"
    np.testing.assert_allclose(explorer.recommended_similarities, expected, atol=1e-6)
    kept = pair_explorer(ReportData(with_choice(found, "1,3 @ mean", UNSURE)))
    assert (kept.recommended, kept.recommended_similarities) == (kept.mix_name, None)


# The gain on pairs


def test_the_gain_on_pairs_is_the_naive_bootstrap():
    random = np.random.default_rng(1)
    gold = random.integers(0, 6, 40).astype(float)
    a, b = gold + random.normal(0, 3, 40), gold + random.normal(0, 1.5, 40)
    found = gain_on_pairs(a, b, gold, seed=2, resamples=200)

    def gain(rows):
        return 100 * (spearmanr(b[rows], gold[rows]).statistic - spearmanr(a[rows], gold[rows]).statistic)

    draws = np.random.default_rng(2).integers(40, size=(200, 40))
    naive = np.array([gain(rows) for rows in draws])
    assert found.mean == pytest.approx(gain(np.arange(40)), abs=1e-9)
    np.testing.assert_allclose([found.low, found.high], np.quantile(naive, (0.025, 0.975)), atol=1e-9)
    tail = min((naive <= 0).sum(), (naive >= 0).sum())
    assert found.p_value == pytest.approx(min(1, 2 * (tail + 1) / 201))


def test_the_gain_is_nothing_for_equals_and_turns_its_sign():
    random = np.random.default_rng(3)
    gold, a, b = random.normal(size=(3, 50))
    same = gain_on_pairs(a, a, gold)
    assert (same.mean, same.low, same.high, same.p_value) == (0, 0, 0, 1)
    one, other = gain_on_pairs(a, b, gold), gain_on_pairs(b, a, gold)
    np.testing.assert_allclose([one.mean, one.low, one.high], [-other.mean, -other.high, -other.low], atol=1e-9)
    assert one.p_value == other.p_value


def test_a_comparison_is_of_the_first_against_the_second(found, shallow, both):
    rows = reporting_rows(found.subject)
    cosines = [results.get(PairSimilarities).mix_similarities[rows] for results in (found, shallow)]
    expected = [100 * spearmanr(each, found.subject.pairs.gold[rows]).statistic for each in cosines]
    assert len(rows) == len(found.subject.pairs) / 2
    assert both.gain.mean == pytest.approx(expected[0] - expected[1], abs=1e-9)
    changes = both.values("against")[""]
    assert (changes.changes[0].second, changes.changes[0].first) == pytest.approx(expected)
    assert (changes.first, changes.second) == ("shallow", "tiny")


def test_names_are_as_long_as_it_takes_to_tell_them_apart():
    assert short_names(["runs/a/model", "runs/b/model"]) == ["a", "b"]
    assert short_names(["runs/simcse", "sscl"]) == ["simcse", "sscl"]
    assert short_names(["x/model", "model"]) == ["x/model", "model"]
    assert short_names(["a/x/m", "b/x/m", "b/y/m"]) == ["a/x/m", "b/x/m", "b/y/m"]


# The page


def test_the_table_holds_the_measures_own_numbers(found):
    table = layer_table(ReportData(found).models)
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    assert [row["layers"] for row in rows] == [*map(str, range(DEPTH + 1)), "own mix"]
    scores = measure_layer_scores(found.subject, unseen=True)
    setsim, toksim = found.get(SetSim), found.get(TokSim)
    for layer, row in enumerate(rows[:-1]):
        for pooling in ("mean", "max"):
            assert row[f"score, {pooling}"] == pytest.approx(scores.of(pooling)[layer])
        assert row["TokSim"] == toksim.means[layer]
        assert row["SetSim"] == (None if layer == 0 else setsim.of("mean")[layer - 1])
        assert row["chosen"] == found.get(ChosenLayers).shares[layer]
    geometry = found.get(Geometry)
    for layer, row in enumerate(rows):
        assert row["anisotropy"] == geometry.anisotropy[layer]
        assert row["effective rank"] == geometry.effective_rank[layer]
        assert row["uniformity"] == geometry.uniformity[layer]
        assert row["alignment"] == geometry.alignment[layer]
    assert (rows[-1]["score, mean"], rows[-1]["score, max"], rows[-1]["TokSim"]) == (scores.mix_score, None, None)


def test_a_table_of_two_models_has_the_rows_of_both(both):
    table = layer_table(both.models)
    assert [column.name for column in table.columns][:2] == ["layers", "model"]
    assert [row[1] for row in table.rows] == ["shallow"] * 4 + ["tiny"] * (DEPTH + 2)


def test_the_explorer_holds_the_pairs_own_cosines(found, shallow, both):
    explorer = pair_explorer(both)
    material = found.subject
    sides = material.sides(material.pooled("mean")[:, 3])
    np.testing.assert_allclose(explorer.similarities[:, 3], cosine(*sides), atol=1e-6)
    np.testing.assert_allclose(explorer.mix_similarities, cosine(*material.sides(material.embeddings)), atol=1e-6)
    assert [pair[0] for pair in explorer.pairs] == list(material.pairs.left)
    assert [pair[2] for pair in explorer.pairs] == material.pairs.gold.tolist()
    assert (explorer.other_name, list(explorer.other_layers)) == ("shallow", ["0", "1", "2"])
    np.testing.assert_array_equal(explorer.other_similarities, shallow.get(PairSimilarities).layers)


def figures_of_no_section(*models):
    """Every figure that `analyze` alone draws, of every measure that the models have."""
    for measure in map(MEASURES.__getitem__, MEASURES):
        values = {model.name: model.values[measure.name] for model in models if measure.name in model.values}
        for figure in measure.figures if values else ():
            if not figure.section:
                yield from (inline_svg(figure.draw(group), "own") for group in figure.groups(values))


def draw(name, values, figure=None, **options):
    return inline_svg(MEASURES[name].figure(figure).draw(values, **options), "own")


def test_every_figure_draws(found, shallow, both, pages):
    """Of one model and of two with different numbers of layers."""
    drawn = [figure.svg for page in pages for section in page.sections for figure in section.figures]
    drawn += [*figures_of_no_section(found), *figures_of_no_section(found, shallow)]
    assert len(drawn) > 25
    for svg in drawn:
        assert 'class="point"' in svg
        assert "nan" not in svg.lower().replace("sentence", "")
        assert re.search('aria-label="(?!figure")', svg), "it is described"
    scores = {"a": found.get(LayerScores)}
    assert MEASURES["scores"].figure().draw(scores, theme=DARK).theme is DARK
    assert "best mix" not in draw("scores", scores)
    assert "best mix" in draw("scores", scores, related={"chosen": {"a": found.get(ChosenLayers)}})
    changes = both.values("against")
    assert "tiny, score of the own mix" in draw("against", changes)
    with pytest.raises(InputError, match="pairs has no figure of its own"):
        MEASURES["pairs"].figure()
    two_models = {model.name: model.get(ChosenLayers) for model in (found, shallow)}
    with pytest.raises(InputError, match="this figure shows one model; draw each by itself"):
        MEASURES["chosen"].figure("sizes").draw(two_models)


@pytest.mark.slow
def test_an_own_mix_is_drawn_as_a_level_where_it_is_not_the_last_layer(found, tiny_bert):
    mixed = ModelOnPairs(LayerModel.load(tiny_bert, mix="1-3", device="cpu"), some_pairs(), cache=False)
    for name, label in (("geometry", "its own mix"), ("spectrum", "own mix")):
        assert label not in draw(name, {"a": found.values[name]})
        assert label in draw(name, {"a": MEASURES[name](mixed, seed=0)})


def titles(data, name):
    return [figure.title for figure in section(data, name).figures]


def test_sections_of_one_model_and_of_two(pages):
    one, two = ({part.id: [figure.title for figure in part.figures] for part in page.sections} for page in pages)
    assert one["scores"] == ["Score by layer"]
    assert two["scores"] == ["Score by layer, tiny", "Both models", "Every figure of both"]
    assert [title.removesuffix(", tiny") for title in two["search"]] == one["search"]
    assert len(one["search"]) == 4
    spaces = ["Geometry by layer", "Shares of variance by direction"]
    points = "The most and the least alike pairs (t-SNE)"
    assert one["space"] == [*spaces, "Layers alike (CKA)", points]
    assert two["space"] == [*spaces, "Layers alike (CKA), shallow", "Layers alike (CKA), tiny", points]
    assert two["smoothing"] == ["SetSim and TokSim", "Tokens of a sentence"]


def test_views_have_a_section_of_their_own_after_the_search(found):
    views = measure_views(found.subject, [named_prompt("means")], seed=1)
    few = replace(found, values={name: found.values[name] for name in ("chosen", "geometry")})
    drawn = {one.id: one for one in sections(ReportData(few, views=views))}
    assert list(drawn) == ["search", "views", "space"]
    (figure,) = drawn["views"].figures
    assert drawn["views"].text == str(views.verdict)
    assert str(views.chosen.mix) in figure.note
    for name, scores in views.scorer.singles.items():
        value = f"{100 * scores[2]:.4g}".replace("-", "−")
        assert scores[2] == -1 or f"{name}, layer 2: {value}" in figure.svg


def test_ids_of_all_figures_are_unique(pages):
    text = page_html(pages[1])
    ids = re.findall(r'[\s]id="([^"]+)"', text)
    assert len(ids) > 50
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)


def test_different_tokenizers_get_a_token_figure_each(both):
    tokens = both.baseline.get(TokenMatrices)
    other = with_value(both.baseline, "tokens", replace(tokens, tokens=("x", *tokens.tokens[1:])))
    assert titles(replace(both, baseline=other), "smoothing") == [
        "SetSim and TokSim",
        "Tokens of a sentence, shallow",
        "Tokens of a sentence, tiny",
    ]


# Is it over-smoothed?


def smoothed(found, tokens, layers, scores=None, choice=UNSURE):
    """The answer where TokSim, SetSim and the scores of single layers are these."""
    told = with_choice(found, "1,3 @ mean", choice)
    told = with_value(told, "toksim", TokSim(np.array(tokens), 10))
    told = with_value(told, "setsim", SetSim(("cls", "mean"), np.array([[0.0] * DEPTH, layers]), 10))
    curve = None if scores is None else LayerScores(("mean",), np.array([scores]), "4 @ mean", "mean", scores[-1], 9)
    return smoothing_answer(ReportData(with_value(told, "scores", curve)))


def test_over_smoothing_is_answered_with_its_degree_and_what_follows(found):
    assert smoothed(found, [0.1, 0.2, 0.3, 0.6, 0.85], [0.5, 0.5, 0.9, 0.97], [10.0, 20, 41.26, 30, 22], SURE) == (
        "Yes, by TokSim, the mean cosine of two tokens of a sentence: it is 0.10 in layer 0 and 0.85 in the last layer "
        "(from 0.8 on we say yes, below 0.5 no). The last layer's embedding has a cosine of 0.97 to that of the layer "
        "below (SetSim): it adds little. It may cost score: layer 2 alone has a score of 41.3, the last 22.0. Use what "
        "the search chooses; a training with lower layers as negatives works against it (recipe small-sscl-simcse)."
    )
    assert load_recipe("small-sscl-simcse").name == "small-sscl-simcse"


@pytest.mark.parametrize(
    ("tokens", "scores", "begins", "ends"),
    [
        ([0.3, 0.2, 0.3, 0.4, 0.499], [1, 2, 3, 4, 5], "No, by TokSim,", "Nothing has to be done against it: no"),
        ([0.3, 0.2, 0.3, 0.4, 0.1], [1, 9, 3, 4, 5], "No, by TokSim,", "there is another reason: the search decides."),
        ([0.3, 0.2, 0.3, 0.4, 0.5], [1, 2, 3, 4, 5], "Partly, by TokSim,", "It does no harm here: no single"),
        ([0.3, 0.2, 0.3, 0.4, 0.79], [1, 9, 3, 4, 5], "Partly, by TokSim,", "The search decides; a training with"),
        ([0.3, 0.2, 0.3, 0.4, 0.8], None, "Yes, by TokSim,", "cannot be said, for the pairs have no grades."),
        ([0.3, 0.2, 0.3, 0.4, 0.8], [1, 2, 3, 4, np.nan], "Yes, by TokSim,", "for the last layer has no score."),
        ([0.3, 0.2, 0.3, 0.4, np.nan], [1, 2, 3, 4, 5], "It cannot be said: no sentence has two tokens.", ""),
    ],
)
def test_over_smoothing_by_degree_and_by_scores(found, tokens, scores, begins, ends):
    text = smoothed(found, tokens, [0.5] * DEPTH, None if scores is None else [float(score) for score in scores])
    assert text.startswith(begins)
    assert ends in text
    assert "nan" not in text


def test_over_smoothing_of_two_models_is_answered_for_each(found, shallow, pages):
    (told,) = [section.text for section in pages[1].sections if section.id == "smoothing"]
    first, second = told.split("\n\n")
    assert first.startswith("tiny: ")
    assert f"{found.get(TokSim).means[-1]:.2f} in the last layer" in first
    assert second.startswith("shallow: ")
    assert f"{shallow.get(TokSim).means[-1]:.2f} in the last layer" in second


def test_a_report_says_what_it_can_without_grades(ungraded):
    page = build_page(ReportData(ungraded))
    assert [section.id for section in page.sections] == ["smoothing", "space"]
    names = [column.name for column in page.measures.columns]
    assert names[:2] == ["layers", "SetSim"]  # no scores, and no column for them
    assert "NaN" not in page_html(page).replace("isNaN", "")
    assert "without scores" in page.subtitle


@pytest.mark.slow
def test_models_with_attention_get_their_section(found, tiny_bert):
    mix = Attention("cls", "mean").with_fitted(network_of("softmax", WIDTH).float())
    model = LayerModel.load(tiny_bert, mix=mix, device="cpu")
    subject = ModelOnPairs(model, some_pairs(), cache=False)
    assert isinstance(measure_model(subject, "x").find(AttentionWeights), AttentionWeights)
    taken = measure_attention(subject)
    pooled = replace(with_value(found, "attention", taken), name="attends")
    assert titles(ReportData(pooled), "attention") == ["Weight of each layer"]
    for both in (ReportData(pooled, found), ReportData(found, pooled)):
        (figure,) = section(both, "attention").figures
        assert figure.title == "Weight of each layer, attends"
        for group in (taken.groups[0], taken.groups[-1]):
            assert group.label in figure.svg
    assert titles(ReportData(found), "attention") == []
    assert len(titles(ReportData(pooled, replace(pooled, name="other")), "attention")) == 2


def test_training_curves_come_from_a_real_training(found, tiny_bert, tmp_path):
    data = save_dev(tmp_path / "data")
    short = recipe(dev={"task": "stsb", "every": 2})
    train_recipe(short, tmp_path / "run", encoder=encoder_of(tiny_bert), corpus=texts(), data=str(data))
    measured = report_data(found, trainings=measure_trainings([tmp_path / "run"]))
    (figure,) = section(measured, "training").figures
    logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    scores = [line["eval_stsb_spearman"] for line in logged if "eval_stsb_spearman" in line]
    assert len(scores) >= 3
    assert figure.svg.count('class="point"') == len(scores)
    assert "run, step 2: " in figure.svg


def test_few_splits_are_drawn_without_bands(found):
    """One split has no standard deviation."""
    chosen = found.get(ChosenLayers)
    several = Curve(chosen.by_size.x, chosen.by_size.mean, np.full(DEPTH + 1, 1.5), ("",) * (DEPTH + 1))
    assert "±" not in draw("chosen", {"a": chosen}, "sizes")
    assert "±" in draw("chosen", {"a": replace(chosen, by_size=several)}, "sizes")


def test_what_is_drawn_together_is_measured_on_the_same_pairs(found):
    """The last layer has one score in the whole report: that on the pairs that did not choose."""
    scores, chosen = found.get(LayerScores), found.get(ChosenLayers)
    assert scores.unseen
    assert scores.of("mean")[-1] == pytest.approx(chosen.last.test)
    whole = measure_layer_scores(found.subject)
    assert "best" in draw("scores", {"a": scores}, related={"chosen": {"a": chosen}})
    assert "best" not in draw("scores", {"a": whole}, related={"chosen": {"a": chosen}})


def test_commands_are_quoted():
    assert command_line("report", "my models/a b") == "layerwise report 'my models/a b'"


# Why a pair has its cosine


def cells_of(rows):
    return [cell for row in rows for cell in row if isinstance(cell, float)]


def test_the_pairs_shown_first_are_explained(found, ungraded):
    data = report_data(found)
    similarities = found.get(PairSimilarities)
    apart = np.abs(rankdata(similarities.grades) - rankdata(np.round(similarities.mix_similarities, 3)))
    assert [*data.explained.terms] == np.argsort(-apart, kind="stable")[:24].tolist()
    for number, pair in data.explained.terms.items():
        assert pair.cosine == pytest.approx(similarities.mix_similarities[number], abs=1e-5)
        assert pair.residual == pair.cosine - pair.total
        assert abs(pair.residual) < 1e-6
        for terms in (pair.left, pair.right):
            assert sum(term for _, term in terms) == pytest.approx(pair.cosine, abs=1e-6)
        assert len(pair.by_word.rows) == 7
        assert sum(cells_of(pair.by_word.rows)) == pytest.approx(pair.cosine, abs=1e-6)
        assert pair.by_layer is None  # the last layer alone
    assert data.explained.reason == ""
    assert pair_explorer(data).explained == data.explained
    assert len(report_data(ungraded).explained.terms) == 12


def test_cosines_are_ranked_as_the_explorer_ranks_them(tiny_layers, found):
    """By what it shows: cosines that are the same to three decimals share their rank."""
    similarities = found.get(PairSimilarities)
    close = replace(similarities, mix_similarities=0.9 + similarities.mix_similarities / 1000)
    chosen = [*explained_pairs(tiny_layers, close).terms]
    shown, exact = (
        np.argsort(-np.abs(rankdata(close.grades) - rankdata(cosines)), kind="stable")[:24].tolist()
        for cosines in (np.round(close.mix_similarities, 3), close.mix_similarities)
    )
    assert chosen == shown != exact


LAYER_TABLES = {
    "0-4": ["layer of A, of B:", "0 @ mean", "1 @ mean", "2 @ mean", "3 @ mean", "4 @ mean"],
    "concat(1,4)": ["layer of A, of B:", "1 @ mean", "4 @ mean"],
    "views(0-4 @ mean; 0-4 @ cls; unit)": ["layer of A", "layer of B", "adds"],
}


@pytest.mark.parametrize("mix", LAYER_TABLES)
def test_terms_by_layer_sum_to_the_cosine(tiny_layers, found, mix):
    model, similarities = tiny_layers.with_mix(mix), found.get(PairSimilarities)
    explained = explained_pairs(model, similarities)
    for pair in explained.terms.values():
        assert [column.name for column in pair.by_layer.columns] == LAYER_TABLES[mix]
        assert sum(cells_of(pair.by_layer.rows)) == pytest.approx(pair.cosine, abs=1e-6)
    number, pair = next(iter(explained.terms.items()))
    alone = explain_pair(model, similarities.left[number], similarities.right[number])
    if len(alone.views) == 10:
        assert pair.by_layer.rows[-1][0] == "94 other pairs"
    else:
        np.testing.assert_allclose([row[1:] for row in pair.by_layer.rows], alone.by_view, atol=1e-6)


def test_terms_on_the_page_sum_to_the_cosine_but_for_rounding(tiny_layers, found):
    explained = explained_pairs(tiny_layers.with_mix("1,4"), found.get(PairSimilarities))
    data = explorer_data(replace(pair_explorer(ReportData(found)), explained=explained))["terms"]
    assert data.keys() == explained.terms.keys()
    for number, shown in data.items():
        cosine = explained.terms[number].cosine
        assert (shown["cosine"], shown["total"]) == (round(cosine, 4), round(explained.terms[number].total, 4))
        assert shown["residual"] == f"{explained.terms[number].residual:.1e}"
        for rows in (*shown["words"], shown["by_word"], shown["by_layer"]):
            cells = cells_of(rows)
            assert cells == [round(cell, 4) for cell in cells]
            assert sum(cells) == pytest.approx(cosine, abs=0.00005 * len(cells) + 1e-6)
    assert len(json.dumps(data)) < 1000 * len(data)


def test_words_of_several_prompts_are_named_in_the_table(tiny_layers, found):
    model = tiny_layers.with_mix('views(1 @ mean; 4 @ last in "Topic: {text}")')
    pairs = explained_pairs(model, found.get(PairSimilarities)).terms.values()
    named = [word for pair in pairs for row in pair.by_word.rows for word in row[:2] if " (in " in word]
    assert set(named) == {'[SEP] (in "Topic: {text}")'}
    assert not [word for pair in pairs for word, _ in pair.left if " (in " in word]


def test_a_model_that_is_no_sum_over_words_says_why(tiny_layers, found):
    model = tiny_layers.with_mix("last @ max")
    with pytest.raises(MixError, match="cannot be explained exactly") as refusal:
        check_linear(model)
    explained = explained_pairs(model, found.get(PairSimilarities))
    assert (explained.terms, explained.reason) == ({}, str(refusal.value))
    explorer = pair_explorer(ReportData(found, explained=explained))
    pairs = page_html(some_page(explorer=explorer)).split('<section id="pairs"')[1].split("</section>")[0]
    assert str(refusal.value) in pairs
    assert 'id="pair_reason"' not in page_html(some_page(explorer=pair_explorer(ReportData(found))))


def test_long_sentences_are_not_explained(tiny_layers, found):
    similarities = found.get(PairSimilarities)
    long = replace(similarities, left=tuple("rain " * 300 for _ in similarities.left))
    explained = explained_pairs(tiny_layers, long)
    assert (explained.terms, explained.reason) == ({}, "Every pair has a sentence of more than 400 letters")
    some = replace(similarities, left=(*long.left[:-1], similarities.left[-1]))
    assert [*explained_pairs(tiny_layers, some).terms] == [len(some.left) - 1]
