"""The verdict: the chosen layers only where they are reliably better, otherwise the last layer."""

from dataclasses import replace

import numpy as np
import pytest

from layerwise import LayerModel, LayerSearch, Mean, search_layers
from layerwise.data import demo_rows
from layerwise.evaluate import evaluate
from layerwise.postprocess import LAYERS
from layerwise.search import Choice, Gain, Space, Verdict, chosen_model
from layerwise.search.verdict import few_pairs_warning


def pairs_of(good, pairs=200, layers=4, noise=0.5, seed=0):
    """One layer's cosines follow the grades, with noise; the others know nothing."""
    random = np.random.default_rng(seed)
    gold = random.uniform(-0.95, 0.95, pairs)
    left, right = random.normal(size=(2, pairs, layers, 8))
    angle = np.arccos(np.clip(gold + noise * random.normal(size=pairs), -1, 1))
    left[:, good], right[:, good] = 0, 0
    left[:, good, 0] = 3
    right[:, good, 0], right[:, good, 1] = 3 * np.cos(angle), 3 * np.sin(angle)
    return left, right, gold


def make(mean=0.05, low=0.02, high=0.08, *, best=(2, 6), last=6, **options):
    return Verdict(
        Choice(Mean.of(*best), 0.8, 0.75),
        Choice(Mean.of(last), 0.7, 0.7),
        Gain(mean, low, high, 0.01),
        300,
        **options,
    )


@pytest.mark.parametrize(
    ("low", "high", "p_value", "sure"),
    [
        (0.01, 0.09, 0.01, True),
        (-0.09, -0.01, 0.01, True),
        (-0.01, 0.09, 0.01, False),
        (0.0002, 0.09, 0.051, False),  # 50 of 2,000 resamples are not above 0
        (np.nan, np.nan, np.nan, False),
    ],
)
def test_a_gain_is_sure_by_its_interval_and_its_p_value(low, high, p_value, sure):
    gain = Gain(0.05, low, high, p_value)
    assert gain.is_sure == sure
    verdict = Verdict(Choice(Mean.of(2), 0.8, 0.75), Choice(Mean.of(6), 0.7, 0.7), gain, 300)
    assert verdict.is_gain == (sure and low > 0)


def test_a_reliable_gain_is_recommended_with_its_interval():
    verdict = make()
    assert verdict.is_gain
    assert verdict.use.layers == (2, 6)
    assert str(verdict) == "Use layers 2,6 @ mean: +5.0 [+2.0, +8.0] (95 %) over the last layer on unseen pairs."
    assert verdict.as_dict()["keep_last_layer"] is False


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.08), (-0.03, 0.02), (-0.08, -0.02), (np.nan, np.nan)])
def test_without_evidence_the_last_layer_is_kept(low, high):
    verdict = make(-0.007, low, high)
    assert verdict.use.layers == (6,)
    assert str(verdict).startswith(
        "Keep the last layer. No combination is reliably better on your 300 pairs (best found"
    )
    assert verdict.as_dict()["use"] == "6 @ mean"
    assert verdict.as_dict()["keep_last_layer"] is True


def test_a_note_on_few_pairs_agrees_with_the_verdict():
    luck = "60 pairs choose among 31 sets: with fewer than 100, which of the good ones is best is little more than luck"
    assert few_pairs_warning(100, "pairs", "31 sets", make()) == ""
    assert few_pairs_warning(60, "pairs", "31 sets") == luck
    assert few_pairs_warning(60, "pairs", "31 sets", make(0.02, -0.03, 0.07)) == luck
    assert few_pairs_warning(60, "pairs", "31 sets", make()) == (
        f"{luck}. This does not apply to the gain over the baseline, which is known only to ±3.0 points"
    )


@pytest.mark.parametrize(("noise", "is_gain"), [(0.2, True), (30.0, False)])
def test_a_search_by_few_pairs_notes_what_its_verdict_rests_on(noise, is_gain):
    search = LayerSearch(resamples=200).fit(*pairs_of(good=1, pairs=80, noise=noise))
    assert search.verdict_.is_gain == is_gain
    note, *_ = search.warnings_
    assert note.startswith("40 pairs choose among 15 sets: with fewer than 100")
    assert ("does not apply to the gain over the baseline" in note) == is_gain


def test_a_last_layer_that_is_the_best_is_kept_in_its_own_words():
    assert str(make(0, 0, 0, best=(6,))) == "Keep the last layer: it is the best found on your 300 pairs."


def test_a_space_without_the_last_layer_keeps_the_highest_that_it_has():
    verdict = make(0.0, -0.1, 0.1, last=3, is_last=False)
    assert str(verdict).startswith("Keep layer 3 @ mean. No combination")
    assert verdict.as_dict()["keep_last_layer"] is False
    forced = make(0.0, -0.1, 0.1, may_keep=False)
    assert forced.use.layers == (2, 6)
    assert "although not reliably better than the last layer" in str(forced)


@pytest.mark.parametrize(
    ("space", "layer"),
    [("all", 4), ("up to 2", 4), ("without 4", 3), ("0-2", 2), ("with 1", 1), ("with 1,2", None), ("exactly 2", None)],
)
def test_the_highest_single_layer_of_a_space(space, layer):
    assert Space.parse(space).highest_single(5) == layer


def test_the_highest_single_layer_below_a_limit():
    assert Space.parse("all", highest=2).highest_single(5) == 2


def test_a_search_recommends_a_planted_layer_and_uses_it():
    left, right, gold = pairs_of(good=1)
    search = LayerSearch().fit(left, right, gold)
    assert search.verdict_.is_gain
    assert search.verdict_.use == search.best_
    assert 1 in search.best_.layers
    assert np.array_equal(search.transform(left), search.best_.mix(left))


def test_a_search_of_noise_keeps_the_last_layer_and_uses_it():
    random = np.random.default_rng(0)
    left, right = random.normal(size=(2, 120, 5, 6))
    gold = random.random(120)
    search = LayerSearch().fit(left, right, gold)
    assert search.best_.layers != (4,)
    assert search.verdict_.use.layers == (4,)
    assert np.array_equal(search.transform(left), left[:, 4])
    assert search.score(left, right, gold) == pytest.approx(search.verdict_.use.on(search.problems_))


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_below_a_limit_the_gain_is_over_the_highest_layer_allowed(seed):
    left, right, gold = pairs_of(good=4, layers=5, seed=seed)
    search = LayerSearch(space=Space(highest=2)).fit(left, right, gold)
    verdict = search.verdict_
    assert verdict.use.layers == verdict.baseline.layers == (2,)
    assert verdict.baseline.test == pytest.approx(search.unseen_scores([Mean.of(2)])[0, 0])
    assert verdict.gain.mean == pytest.approx(search.best_.test - verdict.baseline.test)
    assert search.report_.gain.mean == pytest.approx(search.best_.test - search.last_.test)
    assert verdict.gain.mean > search.report_.gain.mean


def test_false_recommendations_are_rare():
    """Noise recommends in at most 5 of 100 draws, and no draw's choice is truly better."""
    wrong = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        left, right = random.normal(size=(2, 100, 4, 6))
        wrong += LayerSearch(resamples=200).fit(left, right, random.random(100)).verdict_.is_gain
    assert wrong <= 5


def test_one_call_from_a_model_and_pairs_to_the_model_to_use(tiny_bert):
    rows = demo_rows()
    result = search_layers(tiny_bert, rows.left, rows.right, rows.labels, seed=3)
    assert result.model.mix == result.verdict.use.mix
    assert result.model.encoder is result.searched.encoder
    assert str(result.verdict) in result.model.chosen


def test_a_chosen_model_knows_the_pairs_that_chose_it(tiny_bert, tmp_path):
    rows = demo_rows()
    result = search_layers(tiny_bert, rows.left, rows.right, rows.labels, space="exactly 2")
    (choosing, reporting), *_ = result.search.parts_
    assert result.verdict.use == result.verdict.chosen
    result.model.save(tmp_path / "chosen")
    (record,) = LayerModel.load(tmp_path / "chosen").fitted_on
    assert record.what == LAYERS
    seen = rows.pick(choosing)
    assert record.saw([*seen.left, *seen.right]) == 1.0
    unseen = rows.pick(reporting)
    assert record.saw([*unseen.left, *unseen.right]) < 0.2


def test_an_evaluation_on_the_choosing_pairs_says_so(tiny_bert, tmp_path):
    rows = demo_rows()
    model = search_layers(tiny_bert, rows.left, rows.right, rows.labels, space="exactly 2").model
    lines = [
        "sentence1,sentence2,score",
        *(f'"{a}","{b}",{g}' for a, b, g in zip(rows.left, rows.right, rows.labels, strict=True)),
    ]
    (tmp_path / "pairs.csv").write_text("\n".join(lines))
    (tmp_path / "task.toml").write_text('[[task]]\nname = "mine"\nkind = "sts"\nfile = "pairs.csv"\n')
    found = evaluate(model, [str(tmp_path / "task.toml")])
    (result,) = found.runs[0].results.values()
    assert result.stamp["saw_test_text"] > 0.4


def test_a_kept_model_stays_as_it_is(tiny_bert):
    random = np.random.default_rng(1)
    rows = demo_rows()
    result = search_layers(tiny_bert, rows.left, rows.right, random.permutation(rows.labels))
    assert not result.verdict.is_gain
    assert result.model.parts == replace(result.searched.parts, chosen=result.model.chosen)
    other = chosen_model(result.searched, Mean.of(1), "by hand")
    again = search_layers(other, rows.left, rows.right, random.permutation(rows.labels))
    assert again.model.mix == Mean.of(result.searched.encoder.depth)
    assert again.model.fitted_on == ()
