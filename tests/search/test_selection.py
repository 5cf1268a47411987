"""What a search says of its choice: the verdict, the front, what is cheaper, facts, frames, figures and pickles."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from layerwise import LayerModel, Mean, Search
from layerwise.data import demo_rows
from layerwise.errors import InputError
from layerwise.evaluate import evaluate
from layerwise.postprocess import LAYERS
from layerwise.search import SelectionFacts, Space
from support.pair_files import write
from support.search_views import graded_pairs, layers_of_noise, noise_pairs, planted_layer


def select(left, right, gold, **options):
    return Search(**{"n_resamples": 100, **options}).fit_views(left, right, gold).selection_


@pytest.fixture(scope="module")
def fitted(tiny_layers):
    """The tiny model searched by pairs that come with the package."""
    return Search(space="exactly 2", n_resamples=50).fit(tiny_layers, demo_rows()).selection_


# The verdict


def test_a_planted_layer_is_recommended():
    selection = select(*planted_layer(300, noise=0.3))
    assert selection.verdict.is_gain
    assert selection.verdict.use is selection.chosen
    assert 1 in selection.chosen.layers
    assert str(selection.verdict).startswith("Use layer")
    assert selection.gain.low > 0.2


def test_noise_keeps_the_last_layer():
    selection = select(*noise_pairs(120, 5, seed=1))
    assert selection.chosen.layers != (4,)
    assert selection.verdict.use is selection.last is selection.baseline
    assert str(selection.verdict).startswith("Keep the last layer. No combination is reliably better on your 120 pairs")


def test_false_recommendations_are_rare():
    wrong = [select(*noise_pairs(100, 3, seed=seed), n_resamples=60).verdict.is_gain for seed in range(30)]
    assert sum(wrong) <= 2


def test_a_last_layer_that_is_the_best_gains_nothing_over_itself():
    selection = select(*planted_layer(400, good=3))
    assert selection.chosen.layers == (3,)
    assert selection.gain == replace(selection.gain, mean=0, low=0, high=0, p_value=1)
    assert str(selection.verdict) == "Keep the last layer: it is the best found on your 400 pairs."
    assert selection.warnings == []


def test_a_last_layer_without_a_score_is_not_kept():
    left, right, gold = graded_pairs(120, 3)
    right[:, 2] = left[:, 2]
    selection = select(left, right, gold)
    assert np.isnan(selection.last.dev)
    assert np.isnan(selection.gain.mean)
    assert selection.verdict.use is selection.chosen
    assert selection.facts.last.dev is None


def test_below_a_limit_the_gain_is_over_the_highest_layer_allowed():
    selection = select(*planted_layer(300, 5, good=4, noise=0.3), space=Space(highest=2))
    assert selection.baseline.layers == (2,)
    assert selection.verdict.use is selection.baseline
    assert selection.baseline.test == pytest.approx(selection.scorer.unseen_scores([Mean.of(2)])[0, 0])
    assert selection.gain.mean == pytest.approx(selection.chosen.test - selection.baseline.test)
    assert selection.verdict.against_last.high < 0
    assert "Against the last layer of the whole model" in str(selection.verdict)


def test_a_space_without_single_layers_uses_its_best_set_in_any_case():
    selection = select(*noise_pairs(120, 4), space="exactly 2")
    assert not selection.may_keep
    assert selection.verdict.use is selection.chosen
    assert "although not reliably better than the last layer" in str(selection.verdict)


def test_where_all_pairs_choose_none_report():
    selection = select(*graded_pairs(120, 3), dev="all")
    assert selection.chosen.test is selection.last.test is None
    assert selection.gain is selection.cheaper is None
    assert selection.verdict.use is selection.chosen
    assert str(selection.verdict).endswith(
        "the best on your 120 pairs. All of them chose, so that none report what it gains: score it on others, or give "
        "dev."
    )
    assert selection.how.startswith("the best of 7 sets by spearman on 120 pairs (1 split)")
    assert all(scored.test is None for scored in selection.front)


@pytest.mark.parametrize(("pairs", "dev", "number"), [(99, "all", 99), (100, "all", 0), (160, 60, 60), (220, 110, 0)])
def test_few_pairs_are_warned_of(pairs, dev, number):
    warnings = select(*noise_pairs(pairs, 3), dev=dev).warnings
    few = [text for text in warnings if "pairs choose among 7 sets" in text]
    assert [text.partition(" ")[0] for text in few] == [str(number)] * bool(number)


@pytest.mark.parametrize(("noise", "is_gain"), [(0.2, True), (30.0, False)])
def test_a_warning_of_few_pairs_agrees_with_the_verdict(noise, is_gain):
    selection = select(*planted_layer(80, noise=noise))
    assert selection.verdict.is_gain == is_gain
    assert selection.warnings[0].startswith("40 pairs choose among 15 sets: with fewer than 100")
    assert ("does not apply to the gain over the baseline" in selection.warnings[0]) == is_gain


# The front, and what is cheaper


def test_a_middle_layer_that_is_as_good_as_the_last_is_named():
    pairs = layers_of_noise([2.0, 0.3, 0.301, 0.299])
    selection = select(*pairs, space="up to 1")
    assert selection.verdict.use.layers == (3,)
    assert selection.cheaper.scored.layers == (1,)
    assert selection.cheaper.against.low > -0.01
    assert str(selection.cheaper).startswith("layer 1 @ mean, 1 block instead of 3, ")


def test_a_layer_that_loses_more_than_a_point_is_not_as_good():
    selection = select(*layers_of_noise([2.0, 0.5, 0.5, 0.2]), space="up to 1")
    assert selection.verdict.use.layers == (3,)
    assert selection.cheaper is None


def test_a_loss_that_may_be_more_than_a_point_is_not_as_good():
    """The estimates differ by less than a point, but of so few pairs nobody can tell."""
    selection = select(*layers_of_noise([2.0, 0.51, 0.5], pairs=60, own=0.3, seed=5), space="up to 1")
    assert abs(selection.front[1].test - selection.last.test) < 0.01
    assert selection.cheaper is None


def test_what_is_cheaper_is_compared_with_what_the_verdict_says_to_use():
    selection = select(*layers_of_noise([2.0, 0.2, 0.19, 1.0]), space="up to 1")  # the last layer is worse than both
    assert selection.verdict.is_gain
    assert selection.verdict.use.layers == (2,)
    assert selection.cheaper.scored.layers == (1,)
    assert selection.cheaper.instead_of == 2
    assert abs(selection.cheaper.against.mean) < 0.01 < selection.gain.mean


def test_each_split_reports_its_own_front():
    pairs = layers_of_noise([0.9, 0.8, 0.8, 0.8, 0.79], pairs=80)
    selection = select(*pairs, splits=3)
    alone = [select(*pairs, parts=[(split.dev, split.test)]).front for split in selection.splits.parts]
    for best in selection.front:
        own = [[one.test for one in front if one.layers[-1] <= best.layers[-1]][-1] for front in alone]
        assert best.test == pytest.approx(np.mean(own), abs=1e-9)
    assert [one.dev for one in selection.front] == sorted(one.dev for one in selection.front)
    assert [one.blocks for one in selection.front] == sorted({one.blocks for one in selection.front})


# Facts, frames, figures, pickles


def test_json_is_read_by_its_schema(fitted):
    text = fitted.model_dump_json(indent=2)
    assert SelectionFacts.model_validate_json(text) == fitted.facts
    facts = json.loads(text)
    assert facts["verdict"]["text"] == str(fitted.verdict)
    assert facts["chosen"]["mix"] == str(fitted.chosen.mix)
    assert facts["gain"]["mean"] == fitted.gain.mean
    assert (facts["protocol"]["choosing"], facts["protocol"]["reporting"]) == (fitted.n_choosing, fitted.n_reporting)
    assert facts.keys() == SelectionFacts.model_json_schema()["properties"].keys()
    without = select(*noise_pairs(40, 3)[:2], None)
    assert SelectionFacts.model_validate_json(without.model_dump_json()) == without.facts
    assert without.facts.gain is None


def test_the_facts_of_several_splits_are_of_each():
    facts = select(*graded_pairs(120, 3), splits=3).facts
    assert np.mean([split.test for split in facts.splits]) == pytest.approx(facts.chosen.test)
    assert np.mean([split.last_test for split in facts.splits]) == pytest.approx(facts.last.test)


def test_a_selection_is_shown_in_few_short_lines(fitted):
    lines = repr(fitted).splitlines()
    assert len(lines) <= 6
    assert lines[0].startswith(f"Selection of 10 sets by spearman: {fitted.n_choosing} pairs choose; ")
    assert lines[-1] == str(fitted.verdict)
    assert all(len(line) < 80 for line in lines[:-1])


def test_a_frame_has_a_row_for_every_scored_set(fitted):
    frame = fitted.to_frame()
    assert list(frame.columns) == ["mix", "layers", "pooling", "blocks", "dev"]
    assert frame.mix.tolist() == [str(scored.mix) for scored in fitted.table]
    assert frame.dev.is_monotonic_decreasing


@pytest.mark.parametrize("has_scores", [True, False])
def test_a_figure_is_drawn(has_scores, tmp_path):
    left, right, gold = graded_pairs(60, 3)
    select(left, right, gold if has_scores else None).plot().savefig(tmp_path / "selection.png")
    assert (tmp_path / "selection.png").read_bytes().startswith(b"\x89PNG")


def test_a_pickled_selection_has_all_but_views_and_loads_its_model_by_name(fitted, sentences):
    loaded = pickle.loads(pickle.dumps(fitted))
    assert loaded.facts == fitted.facts
    assert str(loaded.verdict) == str(fitted.verdict)
    assert loaded.front == fitted.front
    assert loaded.to_frame().equals(fitted.to_frame())
    assert not hasattr(loaded, "scorer")
    assert pickle.loads(pickle.dumps(loaded)).facts == fitted.facts
    model = loaded.model()
    assert model.mix == fitted.verdict.use.mix
    assert np.abs(model.encode(sentences) - fitted.model().encode(sentences)).max() < 1e-6


def test_a_pickled_search_is_as_it_was():
    search = Search(seed=3, n_resamples=50).fit_views(*graded_pairs())
    loaded = pickle.loads(pickle.dumps(search))
    assert loaded.get_params() == search.get_params()
    assert loaded.selection_.gain == search.selection_.gain
    assert str(loaded.verdict_) == str(search.verdict_)


# The model to use


def test_views_without_their_model_have_no_model_to_use():
    with pytest.raises(InputError, match=r"views were searched without their model; give `verdict\.use\.mix`"):
        select(*graded_pairs()).model()


def test_the_saved_model_says_what_chose_it(fitted, tmp_path):
    fitted.model().save(tmp_path / "chosen")
    model = LayerModel.load(tmp_path / "chosen")
    assert model.mix == fitted.verdict.use.mix
    assert str(fitted.verdict) in model.chosen
    assert str(fitted.verdict) in (tmp_path / "chosen" / "README.md").read_text()
    rows, (record,) = demo_rows(), model.fitted_on
    seen, unseen = (rows.pick(side) for side in fitted.splits[0])
    assert record.what == LAYERS
    assert record.saw([*seen.left, *seen.right]) == 1.0
    assert record.saw([*unseen.left, *unseen.right]) == 0.0


def test_an_evaluation_on_the_choosing_pairs_says_so(fitted, tmp_path):
    rows = demo_rows()
    pairs = zip(rows.left, rows.right, rows.labels, strict=True)
    write(tmp_path / "pairs.csv", [{"sentence1": a, "sentence2": b, "score": s} for a, b, s in pairs])
    (tmp_path / "task.toml").write_text('[[task]]\nname = "mine"\nkind = "sts"\nfile = "pairs.csv"\n')
    (result,) = evaluate(fitted.model(), [str(tmp_path / "task.toml")]).runs[0].results.values()
    assert result.stamp["saw_test_text"] > 0.4


def test_a_kept_model_stays_as_it_is(tiny_layers):
    rows = demo_rows()
    rows = replace(rows, labels=list(np.random.default_rng(1).permutation(rows.labels)))
    selection = Search(n_resamples=50).fit(tiny_layers, rows).selection_
    assert not selection.verdict.is_gain
    kept = selection.model()
    assert kept.parts == replace(tiny_layers.parts, chosen=kept.chosen)
    other = tiny_layers.replaced(mix=Mean.of(1))
    selection = Search(n_resamples=50).fit(other, rows).selection_
    kept = selection.model()
    assert kept.mix == Mean.of(tiny_layers.encoder.depth)
    assert kept.fitted_on == ()
