"""Bridges: our tasks as evaluators of sentence-transformers' trainer, our models as mteb's encoders."""

import csv
import sys
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import SequentialEvaluator
from torch.utils.data import DataLoader

from layerwise.data import Task, load_task
from layerwise.errors import InputError, MissingExtraError
from layerwise.evaluate import LayerSubject, MtebEncoder, Protocol, TaskEvaluator, evaluate
from layerwise.model import Head, LayerModel
from support.tiny import SENTENCES, WORDS


@pytest.fixture
def host(tiny_layers) -> SentenceTransformer:
    return tiny_layers.to_sentence_transformer()


@pytest.mark.parametrize("split", ["dev", "test"])
def test_an_evaluator_says_what_evaluate_says(tiny_layers, host, pairs_task, split):
    evaluator = TaskEvaluator(pairs_task, split=split)
    found = evaluator(host)
    expected = evaluate(LayerSubject(tiny_layers), [pairs_task], protocol=Protocol(split=split)).runs[0]
    figures = expected.results["pairs"].figures
    assert found.keys() == {f"pairs_{name}" for name in figures}
    for name, figure in figures.items():
        assert found[f"pairs_{name}"] == pytest.approx(figure / 100, abs=1e-5)
    assert evaluator.primary_metric == "pairs_spearman"
    assert evaluator.primary_metric in found
    assert evaluator.greater_is_better
    assert evaluator.description == "pairs (sts)"


def test_a_layer_model_can_be_given_too(tiny_layers, host, pairs_task):
    evaluator = TaskEvaluator(pairs_task, split="dev", name="while-training")
    ours, theirs = evaluator(tiny_layers), evaluator(host)
    assert ours.keys() == theirs.keys()
    assert ours["while-training_spearman"] == pytest.approx(theirs["while-training_spearman"], abs=1e-5)


def test_figures_are_appended_to_a_csv_file(tmp_path, host, pairs_task):
    evaluator = TaskEvaluator(pairs_task, split="dev")
    for epoch in (1, 2):
        found = evaluator(host, output_path=str(tmp_path / "eval"), epoch=epoch, steps=10 * epoch)
    with (tmp_path / "eval" / "pairs_results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["epoch"], row["steps"]) for row in rows] == [("1", "10"), ("2", "20")]
    assert {name: float(rows[1][name]) for name in found} == found


def test_constant_similarities_keep_every_column(tmp_path, host, pairs_task):
    """As at the first steps of a training that collapses: nothing shifts in the file, and the metric is there."""

    class Same:
        def encode(self, texts, **_):
            return np.ones((len(texts), 3))

    evaluator = TaskEvaluator(pairs_task, split="dev")
    evaluator(host, output_path=str(tmp_path))
    found = evaluator(Same(), output_path=str(tmp_path))
    assert np.isnan(found[evaluator.primary_metric])
    with (tmp_path / "pairs_results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[1].keys() == rows[0].keys()
    assert {rows[1][name] for name in found} == {"nan"}


def test_headlines_follow_the_protocol(tmp_path, host, pairs_task):
    evaluator = TaskEvaluator(pairs_task, protocol=Protocol(aggregation="mean", split="dev"))
    assert evaluator.primary_metric == "pairs_spearman_mean"
    assert evaluator.primary_metric in evaluator(host)


def test_classes_and_searches_are_evaluators_too(tmp_path, host):
    random = np.random.default_rng(0)
    rows = [{"text": " ".join(random.choice(WORDS, 3)), "label": row % 2} for row in range(60)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    found = TaskEvaluator(Task(name="topics", kind="classification", file=str(tmp_path / "rows.parquet")))(host)
    assert 0 <= found["topics_accuracy"] <= 1
    pairs = [{"query": word, "passage": f"{word} now"} for word in WORDS[:20]]
    pq.write_table(pa.Table.from_pylist(pairs), tmp_path / "pairs.parquet")
    evaluator = TaskEvaluator(Task(name="asked", kind="retrieval", file=str(tmp_path / "pairs.parquet")))
    found = evaluator(host)
    assert evaluator.primary_metric == "asked_mrr@10"
    assert 0 <= found["asked_mrr@10"] <= 1
    assert found["asked_ms"] > 0  # milliseconds stay what they are


def test_a_catalogue_task_by_name_needs_its_data(tmp_path):
    with pytest.raises(InputError, match="Unknown task 'stsc'"):
        TaskEvaluator("stsc")
    with pytest.raises(InputError, match="the data folder does not exist"):
        TaskEvaluator("stsb", data=str(tmp_path / "nowhere"))


@pytest.mark.slow
def test_the_trainer_chooses_its_best_model_by_a_task(tmp_path, host, pairs_task):
    pytest.importorskip("accelerate")
    datasets = pytest.importorskip("datasets")
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

    rows = load_task(pairs_task)
    train = rows.pick(rows.splits["test"])
    data = datasets.Dataset.from_dict(
        {"sentence1": train.left, "sentence2": train.right, "score": [label / 5 for label in train.labels]}
    )
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path),
        max_steps=4,
        per_device_train_batch_size=8,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_pairs_spearman",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    evaluator = TaskEvaluator(pairs_task, split="dev")
    trainer = SentenceTransformerTrainer(
        model=host, args=arguments, train_dataset=data, loss=CosineSimilarityLoss(host), evaluator=evaluator
    )
    trainer.train()
    logged = [entry["eval_pairs_spearman"] for entry in trainer.state.log_history if "eval_pairs_spearman" in entry]
    assert len(logged) == 2
    assert trainer.state.best_metric == max(logged)
    assert evaluator(host)["pairs_spearman"] == pytest.approx(max(logged), abs=1e-6)


def test_among_other_evaluators(host, pairs_task):
    together = SequentialEvaluator([TaskEvaluator(pairs_task, split="dev"), TaskEvaluator(pairs_task, name="end")])
    found = together(host)
    assert {"pairs_spearman", "end_spearman", "sequential_score"} <= found.keys()
    assert found["sequential_score"] == found["end_spearman"]


# mteb


class PromptType(StrEnum):
    """As mteb's."""

    query = "query"
    document = "document"


def batches(texts: list[str]) -> DataLoader:
    return DataLoader([{"text": text} for text in texts], batch_size=3)


CALL = {"task_metadata": None, "hf_split": "test", "hf_subset": "default"}


def test_batches_are_encoded_in_their_order_by_their_prompts(tiny_layers):
    model = LayerModel(tiny_layers.encoder, "2", prompts={"query": "who left ", "document": "the old "})
    bridge = MtebEncoder(model)
    for kind, prompt in ((None, ""), (PromptType.query, "who left "), (PromptType.document, "the old ")):
        found = bridge.encode(batches(SENTENCES), prompt_type=kind, batch_size=4, **CALL)
        expected = tiny_layers.encoder.encode_layers([prompt + text for text in SENTENCES], layers=[2])[:, 0]
        assert np.abs(found - expected).max() < 1e-5, kind


def test_similarities_are_the_models_own(tiny_layers):
    bridge = MtebEncoder(LayerModel(tiny_layers.encoder, "1", similarity="dot"))
    left, right = torch.randn(3, 5), torch.randn(3, 5)
    assert torch.allclose(bridge.similarity(left, right), left @ right.T)
    assert torch.allclose(bridge.similarity_pairwise(left, right), (left * right).sum(1))


def test_a_folder_can_be_named(tiny_bert):
    bridge = MtebEncoder(str(tiny_bert))
    assert bridge.encode(batches(SENTENCES), **CALL).shape == (len(SENTENCES), bridge.model.width)


def test_models_that_embed_otherwise_have_another_revision(tiny_bert, tiny_layers):
    """mteb takes what its cache has of a revision; a head or a prompt more is another one."""
    encoder = tiny_layers.encoder
    head = Head(torch.eye(32), torch.zeros(32))
    models = [
        LayerModel(encoder, "1"),
        LayerModel(encoder, "2"),
        LayerModel(encoder, "1", normalize=True),
        LayerModel(encoder, "1", heads=[head]),
        LayerModel(encoder, "1", prompts={"query": "who "}),
    ]
    revisions = [MtebEncoder(model).revision for model in models]
    assert len(set(revisions)) == len(models)
    assert revisions[1].endswith(" 2 @ mean")
    assert MtebEncoder(LayerModel.load(tiny_bert, mix="1", device="cpu")).revision == revisions[0]


def test_without_mteb_it_says_how_to_get_it(tiny_layers, monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    monkeypatch.setitem(sys.modules, "mteb.models", None)
    with pytest.raises(MissingExtraError, match=r"MtebEncoder needs mteb: pip install 'layerwise\[mteb\]'"):
        MtebEncoder(tiny_layers).mteb_model_meta  # noqa: B018
