"""The loop trains any job: here one that pulls embeddings to zero, with dev scores that are written down beforehand."""

import json
from typing import ClassVar

import pytest
import torch

from layerwise.errors import InputError
from layerwise.model import LayerModel
from layerwise.train import Job, OptimiserSettings, train, train_seeds
from layerwise.train.loop.job import Training
from layerwise.train.loop.settings import BaseModelSettings, BaseRecipe, EvalSchedule
from layerwise.train.loop.student import BaseStudent, EncoderPass, freeze, new_layers
from layerwise.train.recipes.format import RecipeFormat

TOKENS = torch.tensor([[2, 7, 3], [2, 9, 3]])
SCORES = {2: 0.25, 4: 0.75, 6: 0.5}


class Zero(BaseStudent):
    def passes(self, batch):
        return [EncoderPass(rows={"all": 2}, tokens=TOKENS, mask=torch.ones_like(TOKENS))]

    def encode(self, tokens, mask):
        views = self.encoder.read(tokens, mask, self.pooler.layers, self.pooler.poolings)
        return {"embeddings": self.pooler.combine(views)}

    def loss(self, encoded, batch):
        loss = encoded["all"]["embeddings"].square().mean()
        return {"loss": loss, "parts": {"zero": loss.detach()}}


class Steps:
    """Six batches that only say their number."""

    def __init__(self):
        self.first = 0

    def __len__(self):
        return 6

    def __iter__(self):
        return iter([{"step": torch.tensor(number)} for number in range(self.first, 6)])

    def resume_at(self, step):
        self.first = step


class ZeroJob(Job):
    formats: ClassVar = RecipeFormat(recipe=BaseRecipe, folder="none", tables=("model", "train", "dev"), listed={})
    digest, metric = "these rows", "score"
    reads = 0

    def read_data(self):
        self.reads += 1

    def build(self, encoder, *, seed):
        layers = new_layers(self.recipe.model, encoder, seed=seed)
        student = Zero(encoder, layers.pooler, layers.head)
        freeze(student, encoder.model, ())
        scores = iter(SCORES.values())
        return Training(student=student, batches=Steps(), scorer=lambda: {"score": next(scores)})

    def data_facts(self, training):
        return {"rows": 2}

    def score_facts(self, training, state):
        return {"best": state.best_metric, "at_step": state.best_global_step}

    def model(self, training, facts):
        return LayerModel(training.student.encoder, training.student.pooler, training=dict(facts))

    def save(self, model, facts, folder):
        model.replaced(training=facts).save(folder, overwrite=True)

    def summary(self, results):
        return {"seeds": [result["seed"] for result in results]}


@pytest.fixture
def job(tiny_bert):
    recipe = BaseRecipe(
        name="zero",
        model=BaseModelSettings(encoder=str(tiny_bert), pooler="last @ mean", dropout=0.0),
        train=OptimiserSettings(steps=6, learning_rate=1e-3, precision="float32"),
        dev=EvalSchedule(every=2, log_every=1),
    )
    return ZeroJob(recipe)


def test_one_seed(job, tmp_path):
    steps = []
    trained = train(job, tmp_path / "run", seed=3, on_step=lambda step, of, _: steps.append((step, of)))
    assert steps == [(step, 6) for step in range(1, 7)]
    losses = [line["loss"] for line in trained.history if "loss" in line]
    assert losses == sorted(losses, reverse=True)
    facts = {"rows": 2, "seed": 3, "steps": 6, "best": 0.75, "at_step": 4}
    assert trained.facts.items() >= facts.items()
    assert trained.model.training == trained.facts


def test_several_seeds_are_written_read_once_and_resumed(job, tmp_path):
    result = train_seeds(job, tmp_path, seeds=(0, 1))
    assert job.reads == 1
    assert result.summary == {"seeds": [0, 1]}
    names = {path.name for path in (tmp_path / "seed-1").iterdir()}
    assert names == {"model", "recipe.toml", "run.json", "metrics.jsonl", "result.json"}
    assert json.loads((tmp_path / "seed-1" / "run.json").read_text()) == {"seed": 1, "rows": "these rows"}
    assert LayerModel.load(tmp_path / "seed-1" / "model").training == result.results[1]
    assert train_seeds(job, tmp_path, seeds=(0, 1), resume=True).results == result.results
    assert job.reads == 1


@pytest.mark.slow
def test_other_rows_are_not_resumed(job, tmp_path):
    def stop(_, step, *__):
        if step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_seeds(job, tmp_path, on_step=stop)
    job.digest = "other rows"
    with pytest.raises(InputError, match="was started with other rows in its data"):
        train_seeds(job, tmp_path, resume=True)
    job.digest = "these rows"
    assert train_seeds(job, tmp_path, resume=True).results[0]["steps"] == 6
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(
        InputError, match=r"result\.json: is not JSON: .*; it is the result of a finished seed; remove it"
    ):
        train_seeds(job, tmp_path, resume=True)
