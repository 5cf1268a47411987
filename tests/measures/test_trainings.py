"""Trainings side by side: the seeds of a run as one curve, and which layers were good negatives (SSCL, figure 3)."""

import numpy as np
import pytest

from layerwise.errors import InputError
from layerwise.files import write_json
from layerwise.measures import join_seeds, measure_negatives, short_names, training_curves
from layerwise.train import ContrastiveJob, train_seeds
from layerwise.train.loop.seeds import RESULT
from support.finished_trainings import finish, log
from support.tiny import DEPTH
from support.training import recipe, said, save_dev, term

# Curves


def test_the_seeds_of_a_run_become_one_curve_over_the_steps_that_all_have(tmp_path):
    log(tmp_path / "run" / "seed-0", eval_spearman={10: 0.4, 20: 0.6, 30: 0.7}, loss={5: 2.0})
    log(tmp_path / "run" / "seed-1", eval_spearman={10: 0.6, 20: 0.8}, extra={5: 1.0})  # stopped early
    log(tmp_path / "alone", loss={1: 3.0})
    joined = join_seeds(training_curves([tmp_path / "run", tmp_path / "alone"]))
    assert list(joined) == ["run", "alone"]
    run, alone = joined.values()
    assert list(run.series) == ["eval_spearman"]  # the others are not of all seeds
    assert run.series["eval_spearman"].steps.tolist() == [10, 20]
    np.testing.assert_allclose(run.series["eval_spearman"].values, [[0.4, 0.6], [0.6, 0.8]])
    assert run.rows() == [
        {"step": 10, "eval_spearman": pytest.approx(0.5)},
        {"step": 20, "eval_spearman": pytest.approx(0.7)},
    ]
    assert alone.series["loss"].values.tolist() == [3]


def test_runs_of_the_same_name_are_told_apart_and_a_folder_given_twice_counts_once(tmp_path):
    for place in ("a", "b"):
        log(tmp_path / place / "run" / "seed-0", loss={1: 1.0})
    given = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "b" / "run" / "seed-0"]
    assert list(training_curves(given)) == ["a/seed-0", "b/seed-0"]
    assert short_names(["x/one", "x/two"]) == ["one", "two"]
    assert short_names(["same", "same"]) == ["same", "same"]
    assert short_names([]) == []


# Negatives


def test_means_and_spreads_by_hand(tmp_path):
    finish(tmp_path / "a" / "seed-0", [-2], seed=0, scores=(70, 1))
    finish(tmp_path / "a" / "seed-1", [-2], seed=1, scores=(74, 1))
    runs = [
        tmp_path / "a",
        finish(tmp_path / "b", [3], scores=(60, 1)),
        finish(tmp_path / "none", scores=(65, 1)),
        finish(tmp_path / "both", [-2, -3], scores=(75, 1)),
    ]
    found = measure_negatives(runs)
    assert [choice.layers for choice in found.choices] == [(), (3,), (10, 11), (11,)]
    assert found.rows()[-1] == {"negatives": "11", "mean": 72, "sd": pytest.approx(8**0.5), "seeds": "0, 1"}
    assert found.rows()[0] == {"negatives": "none", "mean": 65, "sd": None, "seeds": "0"}
    assert [choice.layers for choice in found.single] == [(3,), (11,)]
    assert found.without.mean == 65
    assert found.notes == ("score: average of sts, test",)


def test_the_score_is_one_that_all_have(tmp_path):
    runs = [finish(tmp_path / "a", [1], scores=(70, 71), dev=50), finish(tmp_path / "b", [2], dev=40)]
    found = measure_negatives(runs)
    assert [choice.mean for choice in found.choices] == [50, 40]
    assert found.notes == ("score: best dev score, stsb",)


def test_what_can_not_be_compared_is_refused(tmp_path):
    first = finish(tmp_path / "first", [1])
    cases = {
        "differs from .* in train.batch_size, so that": finish(tmp_path / "size", [2], batch_size=16),
        "differs from .* in sscl, so that": finish(tmp_path / "term", [2], sscl={"temperature": 0.1}),
        "seed 0 with the same negatives was given already": first,
        "counted from the last layer, and no whole model is there": finish(tmp_path / "cut", [-2], kept=6),
        "no result.json there; give the folder of a training that is finished": tmp_path,
    }
    for message, other in cases.items():
        with pytest.raises(InputError, match=message):
            measure_negatives([first, other])
    with pytest.raises(InputError, match="none of the trainings has the objective 'sscl'"):
        measure_negatives([finish(tmp_path / "plain")])
    write_json(tmp_path / "other" / RESULT, {"seed": 0})
    with pytest.raises(InputError, match=r"other/result.json: is not of `layerwise train`"):
        measure_negatives([tmp_path / "other"])


@pytest.mark.slow
def test_real_trainings_are_read(tiny_bert, tmp_path):
    data = save_dev(tmp_path / "data")
    (tmp_path / "text.txt").write_text("\n".join(said(32)) + "\n")
    base = recipe(
        term("sscl"), data={"files": (str(tmp_path / "text.txt"),)}, dev={"task": "stsb", "every": 2}, steps=2
    )
    made = {}
    for layer, seeds in ((-2, (0, 1)), (1, (0,))):
        own = base.replaced(objectives=(term("sscl", layers=(layer,)),))
        job = ContrastiveJob(own, encoder=str(tiny_bert), data=str(data))
        made[layer] = train_seeds(job, tmp_path / str(layer), seeds=seeds)
    found = measure_negatives([tmp_path / "-2", tmp_path / "1"])
    assert [choice.layers for choice in found.choices] == [(1,), (DEPTH - 1,)]
    assert found.choices[1].mean == pytest.approx(made[-2].summary["dev"]["mean"])
    assert found.choices[1].sd == pytest.approx(made[-2].summary["dev"]["sd"])
    assert found.choices[0].mean == pytest.approx(made[1].results[0]["dev"]["best"])
