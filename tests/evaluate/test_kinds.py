"""Every kind through `evaluate`: figures, stamps, stores, and two evaluations compared row by row."""

import numpy as np
import pytest

from layerwise.data import KINDS, Task
from layerwise.errors import InputError
from layerwise.evaluate import (
    HostSubject,
    LayerSubject,
    Protocol,
    ResultStore,
    TaskEvaluator,
    compare_runs,
    evaluate,
    kind_of,
    layer_mixes,
)
from layerwise.evaluate.kinds import EVALUATED
from layerwise.evaluate.problems import REDRAWS
from support.row_files import write
from support.tiny import DEPTH, WORDS

MTEB = ("bitext", "clustering", "fewshot", "pair-classification", "reranking", "retrieval")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory) -> dict[str, Task]:
    """A small task of each kind."""
    folder, random = tmp_path_factory.mktemp("kinds"), np.random.default_rng(3)

    def text(words: int = 4) -> str:
        return " ".join(random.choice(WORDS, words))

    classed = [{"text": text(), "label": "abc"[n % 3], "split": "train" if n < 60 else "test"} for n in range(90)]
    pairs = [
        {"sentence1": some, "sentence2": f"{some} {text(1)}", "label": n % 2} for n in range(40) for some in [text(5)]
    ]
    candidates = [{"query": f"{WORDS[n // 5]} cat", "text": text(), "label": int(n % 5 == 0)} for n in range(40)]
    corpus = [{"id": f"d{n}", "text": text(6)} for n in range(30)]
    judged = [{"query": f"{WORDS[n]} dog", "passage": f"d{n}", "grade": 1 + n % 3} for n in range(12)]
    for name, rows in (("classed", classed), ("pairs", pairs), ("candidates", candidates), ("judged", judged)):
        write(folder / f"{name}.csv", rows)
    write(folder / "corpus.csv", corpus)
    splits = {"train": "train", "test": "test"}
    declared = {
        "bitext": {"file": "pairs.csv"},
        "clustering": {"file": "classed.csv", "splits": {"test": "test"}},
        "fewshot": {"file": "classed.csv", "splits": splits},
        "pair-classification": {"file": "pairs.csv"},
        "reranking": {"file": "candidates.csv"},
        "retrieval": {
            "file": "judged.csv",
            "corpus": {"file": str(folder / "corpus.csv")},
            "columns": {"label": "grade"},
            "metric": "ndcg@10",
        },
    }
    return {
        kind: Task(name=f"my-{kind}", kind=kind, **values | {"file": str(folder / values["file"])})
        for kind, values in declared.items()
    }


def test_every_kind_has_a_declaration_and_a_way_to_be_evaluated():
    assert set(EVALUATED) == set(REDRAWS) == set(KINDS)
    assert set(MTEB) < set(KINDS)


@pytest.mark.parametrize("kind", MTEB)
def test_every_layer_of_every_kind_from_one_pass(tasks, tiny_layers, tmp_path, kind):
    task, store = tasks[kind], ResultStore(tmp_path / "results")
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
    assert store.taken == DEPTH + 1
    assert [one.figures for one in again] == [one.figures for one in made]


@pytest.mark.parametrize("kind", MTEB)
def test_two_layers_are_compared_row_by_row(tasks, tiny_layers, kind):
    made = evaluate(LayerSubject(tiny_layers, ["0 @ mean", f"{DEPTH} @ mean"]), [tasks[kind]])
    (line,) = compare_runs(*made.runs, resamples=50)
    scores = [run.results[tasks[kind].name].score for run in made.runs]
    assert line.gain is not None, line.note
    assert line.gain.mean == pytest.approx(scores[1] - scores[0], abs=1e-6)
    assert line.gain.low <= line.gain.high


def test_the_metric_decides_what_is_stored(tasks, tiny_layers, tmp_path):
    store, task = ResultStore(tmp_path / "results"), tasks["reranking"]
    subject = LayerSubject(tiny_layers)
    evaluate(subject, [task], store=store)
    other = evaluate(subject, [task.replaced(metric="mrr")], store=store)
    (result,) = other
    assert store.taken == 0
    assert 100 * result.items.mean() == pytest.approx(result.figures["mrr"])
    shots = [kind_of(one).settings(one, Protocol()) for one in (tasks["fewshot"], tasks["fewshot"].replaced(shots=3))]
    assert shots[0] != shots[1]


def test_queries_and_passages_get_their_prompts(tasks):
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
        evaluate(HostSubject(model), [tasks[kind]])
        assert model.asked == expected


@pytest.mark.parametrize("kind", ["clustering", "bitext", "reranking"])
def test_only_test_rows_are_scored(tasks, tiny_layers, kind):
    with pytest.raises(InputError, match=r"--split dev is for STS; task 'my-.*' is scored on its test rows"):
        evaluate(LayerSubject(tiny_layers), [tasks[kind]], protocol=Protocol(split="dev"))


def test_suites_of_several_metrics_have_no_average(tasks, tiny_layers):
    made = evaluate(LayerSubject(tiny_layers), [tasks["bitext"], tasks["clustering"]])
    assert np.isnan(made.runs[0].averages()["own"])
    assert [line.task for line in compare_runs(made.runs[0], made.runs[0], resamples=5)] == [
        "my-bitext",
        "my-clustering",
    ]


def test_any_kind_is_an_evaluator_of_a_training(tasks, tiny_layers):
    for task in tasks.values():
        evaluator = TaskEvaluator(task)
        metrics = evaluator(tiny_layers)
        (result,) = evaluate(LayerSubject(tiny_layers), [task])
        assert metrics[evaluator.primary_metric] == pytest.approx(result.score / 100)
