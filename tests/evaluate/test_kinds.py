"""Every kind through `evaluate`: figures, stamps, stores, and two evaluations compared row by row."""

import numpy as np
import pytest

from layerwise.data import KINDS
from layerwise.errors import InputError
from layerwise.evaluate import (
    HostSubject,
    LayerSubject,
    Protocol,
    ResultStore,
    TaskEvaluator,
    compare_runs,
    evaluate,
    layer_mixes,
)
from layerwise.kinds import Problem, problem_class
from support.slow_cases import one_in
from support.tiny import DEPTH

MTEB = ("bitext", "clustering", "fewshot", "pair-classification", "reranking", "retrieval")


def test_every_declaration_names_a_problem_and_metrics_that_are_computed():
    for kind in map(KINDS.__getitem__, KINDS):
        assert issubclass(kind.problem_class, Problem)
        assert KINDS[kind.name] is kind
        assert kind.redraw(next(iter(kind.metrics))) is not None  # the headline has intervals
        assert set(kind.required) <= set(kind.columns)
    assert set(MTEB) < set(KINDS)


@pytest.mark.parametrize("kind", one_in(2, MTEB))
def test_every_layer_of_every_kind_from_one_pass(kind_tasks, tiny_layers, tmp_path, kind):
    task, store = kind_tasks[kind], ResultStore(tmp_path / "results")
    subject = LayerSubject(tiny_layers, layer_mixes(DEPTH, ("mean",)))
    made = evaluate(subject, [task], store=store)
    assert len(made.runs) == DEPTH + 1
    for result in made:
        assert result.metric == task.metric
        assert 0 <= result.score <= 100
        assert (result.stamp["kind"], result.stamp["protocol"]) == (kind, "mteb")
        assert result.stamp["aggregation"] is None
        assert result.stamp["split"] == ("test" if task.splits else "all rows")
    assert len({result.score for result in made}) > 1
    again = evaluate(subject, [task], store=store)
    assert store.hits == DEPTH + 1
    assert [one.figures for one in again] == [one.figures for one in made]


@pytest.mark.parametrize("kind", MTEB)
def test_two_layers_are_compared_row_by_row(kind_tasks, tiny_layers, kind):
    made = evaluate(LayerSubject(tiny_layers, ["0 @ mean", f"{DEPTH} @ mean"]), [kind_tasks[kind]])
    (line,) = compare_runs(*made.runs, resamples=50)
    scores = [run.results[kind_tasks[kind].name].score for run in made.runs]
    assert line.gain is not None, line.note
    assert line.gain.mean == pytest.approx(scores[1] - scores[0], abs=1e-6)
    assert line.gain.low <= line.gain.high


def test_the_metric_decides_what_is_stored(kind_tasks, tiny_layers, tmp_path):
    store, task = ResultStore(tmp_path / "results"), kind_tasks["reranking"]
    subject = LayerSubject(tiny_layers)
    evaluate(subject, [task], store=store)
    other = evaluate(subject, [task.replaced(metric="mrr")], store=store)
    (result,) = other
    assert store.hits == 0
    assert 100 * result.items.mean() == pytest.approx(result.figures["mrr"])
    shots = [
        problem_class(one).settings(one, Protocol())
        for one in (kind_tasks["fewshot"], kind_tasks["fewshot"].replaced(shots=3))
    ]
    assert shots[0] != shots[1]


def test_queries_and_passages_get_their_prompts(kind_tasks):
    class Prompted:
        def __init__(self):
            self.asked = {}

        def encode_query(self, texts, **_):
            self.asked["query"] = len(texts)
            return np.random.default_rng(0).normal(size=(len(texts), 4))

        def encode_document(self, texts, **_):
            self.asked["document"] = len(texts)
            return np.random.default_rng(1).normal(size=(len(texts), 4))

    for kind, expected in (("retrieval", {"query": 12, "document": 30}), ("reranking", {"query": 8, "document": 40})):
        model = Prompted()
        evaluate(HostSubject(model), [kind_tasks[kind]])
        assert model.asked == expected


@pytest.mark.parametrize("kind", ["clustering", "bitext", "reranking"])
def test_only_test_rows_are_scored(kind_tasks, tiny_layers, kind):
    with pytest.raises(InputError, match=r"--split dev is for STS; task 'my-.*' is scored on its test rows"):
        evaluate(LayerSubject(tiny_layers), [kind_tasks[kind]], protocol=Protocol(split="dev"))


def test_suites_of_several_metrics_have_no_average(kind_tasks, tiny_layers):
    made = evaluate(LayerSubject(tiny_layers), [kind_tasks["bitext"], kind_tasks["clustering"]])
    assert np.isnan(made.runs[0].averages()["own"])
    assert [line.task for line in compare_runs(made.runs[0], made.runs[0], resamples=5)] == [
        "my-bitext",
        "my-clustering",
    ]


def test_any_kind_is_an_evaluator_of_a_training(kind_tasks, tiny_layers):
    for task in kind_tasks.values():
        evaluator = TaskEvaluator(task)
        metrics = evaluator(tiny_layers)
        (result,) = evaluate(LayerSubject(tiny_layers), [task])
        assert metrics[evaluator.primary_metric] == pytest.approx(result.score / 100)
