"""Published figures on real data: STS sets from one pass over their texts, and all-MiniLM-L6-v2 on STS-B dev.

Whole sets are scored in `make test-all` alone: their 28,530 texts take minutes on two cores.
"""

import shutil
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from layerwise.data import Task, find_tasks, load_task
from layerwise.encoder.folders import embedded_folder
from layerwise.evaluate import Evaluation, LayerSubject, Protocol, ResultStore, evaluate, layer_mixes
from layerwise.metrics import correlations
from layerwise.model import LayerModel

pytestmark = [pytest.mark.shared, pytest.mark.timeout(3600)]

MEAN = {"sts12": 35.17, "sts13": 51.54, "sts14": 44.73, "sts15": 56.94, "sts16": 54.15, "stsb": 45.00, "sickr": 48.05}
PAIRS = {"sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186, "stsb": 1379, "sickr": 4927}
BY_LAYER = [48.7, 50.8, 50.7, 47.4, 47.3, 45.1, 42.5, 40.8, 39.9, 39.9, 41.5, 44.2, 45.0]  # STS-B, as in test_shared


ALL = tuple(MEAN)


@dataclass
class Sets:
    """Every layer by every pooling on some sets, and how many texts the model has read so far."""

    tasks: list[Task]
    model: LayerModel
    data: str
    store: ResultStore
    found: Evaluation
    passed: list[int]

    @property
    def read(self) -> int:
        return sum(self.passed)


@pytest.fixture(scope="module")
def sets_cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    yield folder
    shutil.rmtree(folder)  # 1.6 GB of views


@pytest.fixture(scope="module", params=[pytest.param(ALL, marks=pytest.mark.slow)], ids=["all"])
def evaluated(request, shared, sets_cache) -> Sets:
    model = LayerModel.load(shared / "models" / "wiki-mlm-12x384", device="cpu")
    passed: list[int] = []
    mixes = layer_mixes(model.encoder.depth)  # asks for the depth: the reader's own checks run the model, once
    model.encoder.model.register_forward_pre_hook(
        lambda _, __, given: passed.append(len(given["input_ids"])), with_kwargs=True
    )
    folder = sets_cache / str(len(request.param))
    tasks, data, store = find_tasks(request.param), str(shared / "data"), ResultStore(folder / "results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERWISE_CACHE", str(folder))
        found = evaluate(LayerSubject(model, mixes), tasks, data=data, store=store)
    return Sets(tasks, model, data, store, found, passed)


@pytest.fixture
def sets(evaluated, sets_cache, own_cache, monkeypatch) -> Sets:
    """The same, with its views within reach."""
    monkeypatch.setenv("LAYERWISE_CACHE", str(evaluated.store.folder.parent))
    return evaluated


def test_39_mixes_read_every_text_once(sets):
    texts = 0
    for task in sets.tasks:
        rows = load_task(task, sets.data)
        texts += len(rows.pick(rows.splits["test"]).texts)
    assert len(sets.found.runs) == 13 * 3
    assert all(list(run.results) == [task.name for task in sets.tasks] for run in sets.found.runs)
    assert sets.read == texts
    assert len(sets.tasks) < 7 or texts == 28_530


def test_the_last_layer_scores_what_is_published(sets):
    before = sets.read
    found = evaluate(LayerSubject(sets.model, ["last", "last @ cls"]), sets.tasks, data=sets.data)
    assert sets.read == before  # not stored, but scored from cached views
    mean, cls = found.runs
    for name, result in mean.results.items():
        assert result.score == pytest.approx(MEAN[name], abs=0.05), name
        assert result.stamp["as_published"] is True
        assert result.stamp["scored"] == PAIRS[name]
    if len(sets.tasks) == 7:
        assert mean.average == pytest.approx(47.94, abs=0.05)
        assert cls.average == pytest.approx(42.20, abs=0.05)


def test_every_layer_is_there_from_the_same_pass(sets):
    runs = {run.mix: run for run in sets.found.runs}
    scores = [runs[f"{layer} @ mean"].results["stsb"].score for layer in range(13)]
    assert np.abs(np.array(scores) - BY_LAYER).max() < 0.06
    for task in sets.tasks:
        assert runs["12 @ mean"].results[task.name].score == pytest.approx(MEAN[task.name], abs=0.05)
    assert np.isnan(runs["0 @ cls"].average)  # the same vector in every sentence


def test_a_second_run_reads_nothing_and_scores_nothing(sets, monkeypatch):
    before = sets.read
    monkeypatch.setattr("layerwise.evaluate.subject.problem_of", lambda *_: pytest.fail("scored again"))
    again = evaluate(LayerSubject(sets.model, layer_mixes(12)), sets.tasks, data=sets.data, store=sets.store)
    assert sets.read == before
    for one, other in zip(sets.found, again, strict=True):
        assert np.array_equal(list(one.figures.values()), list(other.figures.values()), equal_nan=True)


@pytest.mark.slow  # made-up subsets are in test_evaluate_store; stsb has none
@pytest.mark.parametrize("evaluated", [ALL], indirect=True, ids=["all"])
def test_averages_over_subsets_are_stored_too(sets, monkeypatch):
    monkeypatch.setattr("layerwise.evaluate.subject.problem_of", lambda *_: pytest.fail("scored again"))
    weighted = Protocol(aggregation="wmean")
    subject = LayerSubject(sets.model, ["last"])
    found = evaluate(subject, find_tasks(["sts13"]), data=sets.data, store=sets.store, protocol=weighted)
    result = found.runs[0].results["sts13"]
    parts = result.details["subsets"].values()
    assert sorted(part["rows"] for part in parts) == [189, 561, 750]
    assert result.score == pytest.approx(sum(part["spearman"] * part["rows"] for part in parts) / 1500)


def check_by_sentence_transformers(result, left, right, labels):
    ours = correlations(result.items, result.gold)
    theirs = EmbeddingSimilarityEvaluator(left, right, [label / 5 for label in labels])
    expected = theirs(SentenceTransformer(str(embedded_folder()), device="cpu"))
    assert ours["spearman"] / 100 == pytest.approx(expected["spearman_cosine"], abs=1e-4)
    assert ours["pearson"] / 100 == pytest.approx(expected["pearson_cosine"], abs=1e-4)


@pytest.mark.slow
def test_minilm_on_some_pairs_by_us_and_by_sentence_transformers(shared, tmp_path):
    pairs = pq.read_table(shared / "data" / "sts" / "stsb.parquet", filters=[("split", "=", "dev")])[::30]
    pq.write_table(pairs, tmp_path / "some.parquet")
    task = Task(name="some", kind="sts", file=str(tmp_path / "some.parquet"))
    found = evaluate(LayerSubject(LayerModel.load("default", device="cpu"), cache=False), [task])
    result, rows = found.runs[0].results["some"], pairs.to_pydict()
    assert result.stamp["scored"] == 50
    check_by_sentence_transformers(result, rows["sentence1"], rows["sentence2"], rows["score"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stsb", "stsb-raw"])
def test_minilm_on_stsb_dev_by_us_and_by_sentence_transformers(shared, name):
    """Both forms give the published 86.72: the model lower-cases, and spaces before marks make little difference."""
    model = LayerModel.load("default", device="cpu")
    data, tasks = str(shared / "data"), find_tasks([name])
    found = evaluate(LayerSubject(model, cache=False), tasks, protocol=Protocol(split="dev"), data=data)
    result = found.runs[0].results[name]
    assert result.score == pytest.approx(86.72, abs=0.05)
    assert (result.stamp["split"], result.stamp["scored"]) == ("dev", 1500)
    rows = load_task(tasks[0], data)
    rows = rows.pick(rows.splits["dev"])
    check_by_sentence_transformers(result, rows.left, rows.right, rows.labels)
