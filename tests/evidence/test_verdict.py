"""The verdict: a choice only where it is reliably better, otherwise the baseline; without labels it says so."""

import numpy as np
import pytest

from layerwise import Mean
from layerwise.evidence import Gain, Verdict, few_units_warning, name_mix, points
from layerwise.mixes import parse_mix
from layerwise.search import Scored


def make(mean=0.05, low=0.02, high=0.08, *, best=(2, 6), last=6, **options):
    chosen, baseline = Scored(Mean.of(*best), 0.8, 0.75), Scored(Mean.of(last), 0.7, 0.7)
    return Verdict(chosen, baseline, Gain(mean, low, high, 0.01), 300, **options)


def unlabelled(best=(2, 6), **options):
    chosen, baseline = Scored(Mean.of(*best), 0.8), Scored(Mean.of(6), 0.7)
    return Verdict(chosen, baseline, None, 300, "pairs", **options)


def test_a_reliable_gain_is_recommended_with_its_interval():
    verdict = make()
    assert verdict.is_gain
    assert verdict.use is verdict.chosen
    assert str(verdict) == "Use layers 2,6 @ mean: +5.0 [+2.0, +8.0] (95 %) over the last layer on unseen pairs."
    assert repr(verdict) == f"Verdict({str(verdict)!r})"
    assert verdict.as_dict() == {
        "use": "2,6 @ mean",
        "keep_last_layer": False,
        "reliable_gain": True,
        "has_evidence": True,
        "text": str(verdict),
    }


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.08), (-0.03, 0.02), (-0.08, -0.02), (np.nan, np.nan)])
def test_without_evidence_the_last_layer_is_kept(low, high):
    verdict = make(-0.007, low, high, unit="queries")
    assert verdict.use is verdict.baseline
    assert verdict.keeps_last
    assert str(verdict).startswith(
        "Keep the last layer. No combination is reliably better on your 300 queries (best found −0.7, 95 %"
    )


def test_a_last_layer_that_is_the_best_is_kept_in_its_own_words():
    assert str(make(0, 0, 0, best=(6,))) == "Keep the last layer: it is the best found on your 300 pairs."


def test_a_space_without_the_last_layer_keeps_the_highest_that_it_has():
    verdict = make(0.0, -0.1, 0.1, last=3, is_last=False, against_last=Gain(-0.01, -0.02, 0.0, 0.04))
    assert str(verdict).startswith("Keep layer 3 @ mean. No combination")
    assert str(verdict).endswith("Against the last layer of the whole model: −1.0 [−2.0, +0.0] (95 %).")
    assert not verdict.keeps_last
    forced = make(0.0, -0.1, 0.1, may_keep=False)
    assert forced.use is forced.chosen
    assert "although not reliably better than the last layer" in str(forced)


def test_a_baseline_without_a_score_is_not_kept():
    chosen, baseline = Scored(Mean.of(2), 0.8, 0.75), Scored(Mean.of(6), 0.7, np.nan)
    verdict = Verdict(chosen, baseline, Gain(*[np.nan] * 4), 300)
    assert verdict.use is chosen
    assert str(verdict) == (
        "Use layer 2 @ mean: it has a score, and the baseline has none, over the last layer on unseen pairs."
    )


def test_a_choice_without_labels_says_that_no_score_stands_behind_it():
    verdict = unlabelled(criterion="dropout", hit_rate="On seven STS sets it was better in 5 of 7.")
    assert verdict.use is verdict.chosen
    assert not verdict.has_evidence
    assert not verdict.is_gain
    assert str(verdict) == (
        "Use layers 2,6 @ mean, chosen without labels (dropout). No score stands behind this: nothing was graded. "
        "On seven STS sets it was better in 5 of 7. 100 or more graded pairs would tell."
    )


def test_criteria_that_disagree_keep_the_baseline():
    verdict = unlabelled(criterion="dropout, halves", is_agreed=False)
    assert verdict.use is verdict.baseline
    assert verdict.keeps_last
    assert str(verdict).startswith(
        "Keep the last layer. The criteria without labels (dropout, halves) do not agree on a better set. No score"
    )
    assert str(unlabelled(best=(6,))).startswith("Keep the last layer: it is the best found without labels. No score")


def test_a_note_on_few_units_agrees_with_the_verdict():
    luck = "60 pairs choose among 31 sets: with fewer than 100, which of the good ones is best is little more than luck"
    assert few_units_warning(100, "pairs", "31 sets", make()) == ""
    assert few_units_warning(60, "pairs", "31 sets") == luck
    assert few_units_warning(60, "pairs", "31 sets", make(0.02, -0.03, 0.07)) == luck
    assert few_units_warning(60, "pairs", "31 sets", unlabelled()) == luck
    assert few_units_warning(60, "pairs", "31 sets", make()) == (
        f"{luck}. This does not apply to the gain over the baseline, which is known only to ±3.0 points"
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("2,6 @ mean", "layers 2,6 @ mean"),
        ("5 @ cls", "layer 5 @ cls"),
        ("views(5 @ mean; 9 @ last)", "views(5 @ mean; 9 @ last)"),
    ],
)
def test_names_of_mixes(text, name):
    assert name_mix(parse_mix(text)) == name


def test_points_have_a_sign():
    assert (points(-0.007), points(0.05)) == ("−0.7", "+5.0")


@pytest.mark.parametrize(("best", "advice"), [((2, 6), "Use layers 2,6 @ mean,"), ((6,), "Keep the last layer: it is")])
def test_where_all_graded_units_choose_none_report(best, advice):
    verdict = unlabelled(best, is_graded=True)
    assert verdict.use is verdict.chosen
    assert str(verdict) == (
        f"{advice} the best on your 300 pairs. All of them chose, so that none report what it gains: score it on "
        f"others, or give dev."
    )
