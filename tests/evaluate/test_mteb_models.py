"""Our models in the real mteb, by `MtebEncoder` and by a saved folder in plain SentenceTransformer, on every kind.

The tasks are made of our rows, in memory. `evaluate` has the same figures to 1e-6: the vectors of the three ways differ
in the last digits of float32, which moves Pearson's correlation by 1e-8 and changes the order of no two rows here.
"""

import json

import pytest
from sentence_transformers import SentenceTransformer

from layerwise.data import Task, load_task
from layerwise.evaluate import LayerSubject, MtebEncoder, evaluate
from layerwise.model import LayerModel
from support.mteb_tasks import as_mteb, import_mteb, mteb_scores, mteb_task

pytest.importorskip("datasets")

KINDS = ("sts", "pair-classification", "bitext", "clustering", "fewshot", "reranking", "retrieval")


@pytest.fixture(scope="module")
def model(tiny_layers) -> LayerModel:
    """Of two layers, with prompts for queries and passages."""
    return LayerModel(tiny_layers.encoder, "1,3", prompts={"query": "who left ", "document": "the old "})


@pytest.fixture(scope="module")
def tasks(kind_tasks, pairs_task) -> dict[str, Task]:
    return {**kind_tasks, "sts": pairs_task}


@pytest.fixture(scope="module", params=["MtebEncoder", "saved folder"])
def scores(request, model, tasks, tmp_path_factory) -> dict[str, dict[str, float]]:
    """mteb's scores of all tasks by their names."""
    subject = MtebEncoder(model, name="me/tiny")
    if request.param == "saved folder":
        folder = tmp_path_factory.mktemp("saved")
        model.save(folder)
        modules = json.loads((folder / "modules.json").read_text())
        assert all(module["type"].startswith("sentence_transformers.") for module in modules)  # none of ours
        subject = SentenceTransformer(str(folder), device="cpu")
    return mteb_scores(subject, *(mteb_task(load_task(task)) for task in tasks.values()))


@pytest.mark.parametrize("kind", KINDS)
def test_mteb_scores_our_models_as_we_do(kind, model, tasks, scores):
    task = tasks[kind]
    (result,) = evaluate(LayerSubject(model), [task])
    ours, theirs = as_mteb(kind, result.figures), scores[task.name]
    assert ours == pytest.approx({name: theirs[name] for name in ours}, abs=1e-6)


def test_mteb_knows_what_the_model_is(model):
    import_mteb()
    from mteb.models.model_meta import ScoringFunction

    meta = MtebEncoder(model, name="me/tiny").mteb_model_meta
    assert (meta.name, meta.embed_dim, meta.max_tokens) == ("me/tiny", 32, 60)
    assert meta.revision.endswith("1,3 @ mean")
    assert meta.similarity_fn_name is ScoringFunction.COSINE  # mteb compares it by identity
