"""`train_multitask`: from a recipe of several tasks to a predictor."""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from layerwise.encoder.layer_encoder import LayerEncoder
from layerwise.errors import InputError
from layerwise.multitask.batches import MultitaskBatches
from layerwise.multitask.build import MultitaskParts, build, check_trainable
from layerwise.multitask.dev import OVERALL, Report, report, with_fewer_dev_rows
from layerwise.multitask.facts import fitted_on, multitask_facts
from layerwise.multitask.rows import TrainingTask, load_training_task
from layerwise.multitask.settings import MultitaskRecipe
from layerwise.multitask.student import MultitaskStudent
from layerwise.predict import Predictor, task_tokenizers
from layerwise.train.loop.callbacks import METRICS, make_callbacks, read_metrics
from layerwise.train.loop.callbacks import OnStep as Told
from layerwise.train.loop.checkpoints import checkpoint_step as steps_done
from layerwise.train.loop.checkpoints import disk_errors as written
from layerwise.train.loop.trainer import BaseTrainer as WatchedTrainer
from layerwise.train.seeds import checked_folder, host_arguments, named_encoder

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MultitaskTrained:
    """A finished training: the predictor with its best weights, and how it went.

    Args:
        predictor: Encoder and heads.
        facts: Recipe, rows, seed, steps, time, scores.
        history: The lines of the metrics file.
        scores: Role ("dev" and, where rows have labels, "test") -> "task/metric" and "overall" -> score.
        confusions: Task -> how often class i (row) was taken for class j (column), on dev.
    """

    predictor: Predictor
    facts: dict[str, Any]
    history: list[dict[str, Any]]
    scores: dict[str, dict[str, float]]
    confusions: dict[str, NDArray[np.int64]]


class MultitaskTrainer(WatchedTrainer):
    """Hands a step to the student as it is; learned weights have a rate of their own, and no weight decay.

    Args:
        learned_rate: That rate.
        given: For `WatchedTrainer`.
        options: For `WatchedTrainer`.
    """

    student: MultitaskStudent

    def __init__(self, *given: Any, learned_rate: float, **options: Any) -> None:
        super().__init__(*given, **options)
        self.learned_rate = learned_rate

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *_: Any, **__: Any) -> Tensor:
        """The student's loss on all tasks of a step."""
        return super().compute_loss(model, {"batches": inputs})

    def log(self, logs: dict[str, float], *given: Any, **options: Any) -> None:
        """The learned weights beside the losses."""
        learned = self.student.learned
        if learned is not None and "loss" in logs:
            logs |= {f"weight_{name}": own for name, own in zip(self.student.weights, learned.weights, strict=True)}
        super().log(logs, *given, **options)

    def create_optimizer(self, *given: Any, **options: Any) -> Any:
        """The host's, with the learned weights in a group of their own. Decay would pull them to 1."""
        fresh = self.optimizer is None
        optimiser = super().create_optimizer(*given, **options)
        learned = [own for name, own in self.student.named_parameters() if name.startswith("learned.")]
        if learned and fresh:
            taken = set(map(id, learned))
            for group in optimiser.param_groups:
                group["params"] = [own for own in group["params"] if id(own) not in taken]
            optimiser.add_param_group({"params": learned, "lr": self.learned_rate, "weight_decay": 0.0})
        return optimiser


def train_multitask(
    recipe: MultitaskRecipe,
    folder: str | os.PathLike[str],
    *,
    encoder: LayerEncoder | str | None = None,
    tasks: Sequence[TrainingTask] | None = None,
    data: str | None = None,
    seed: int = 0,
    resume: bool = False,
    device: str | None = None,
    told: Told | None = None,
) -> MultitaskTrained:
    """Train one encoder on several tasks. Tasks of weight 0 are neither trained, scored nor kept.

    Args:
        recipe: What to do.
        folder: For checkpoints and the metrics file. One that holds checkpoints is refused unless `resume`.
        encoder: Instead of the recipe's. An encoder given as such is trained in place.
        tasks: The recipe's tasks as `read_tasks_of` gives them, where they are read already.
        data: The data folder.
        seed: Of new weights, the order of the rows and dropout.
        resume: Go on from the last checkpoint in the folder, to the same losses as without the break.
        device: Where to train.
        told: Called with the step, the number of steps and the latest figures.
    """
    began, folder = time.perf_counter(), Path(folder)
    _check_one_process()
    check_trainable(recipe)
    checkpoint = checked_folder(folder, resume)
    tasks = read_tasks_of(recipe, data) if tasks is None else tuple(tasks)
    if not isinstance(encoder, LayerEncoder):
        encoder = LayerEncoder(encoder or named_encoder(recipe), device=device)
    parts = build(recipe, tasks, encoder, seed=seed)
    arguments = host_arguments(recipe, folder, encoder.device, seed=seed, metric=OVERALL)
    batches = _batches(recipe, parts, seed)
    if checkpoint is not None:
        batches.skip(steps_done(checkpoint) % len(batches))
    looked_at, seen = parts.predictor(remember=True), [with_fewer_dev_rows(task, recipe.dev.limit) for task in tasks]
    trainer = MultitaskTrainer(
        parts.student,
        arguments,
        batches,
        learned_rate=recipe.mixing.learned_rate,
        scorer=lambda: _look(looked_at, seen, bf16=arguments.bf16),
        callbacks=make_callbacks(folder, told, patience=recipe.dev.patience),
    )
    log.info("training on %s, device %s", _sizes(tasks), encoder.device)
    with written(folder):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    _tell_cut(tasks, batches.cut_shares())
    parts.student.eval()
    found = {role: report(looked_at, tasks, role) for role in _roles(tasks)}
    facts = multitask_facts(recipe, parts, seed, trainer.state, time.perf_counter() - began, found)
    predictor = parts.predictor(training=facts, fitted_on=fitted_on(recipe, tasks))
    return _trained(predictor, facts, read_metrics(folder / METRICS), found)


def read_tasks_of(recipe: MultitaskRecipe, data: str | None = None) -> tuple[TrainingTask, ...]:
    """The rows of every task that is trained; `data` is the data folder."""
    return tuple(load_training_task(setup, data) for setup in recipe.trained)


def _trained(
    predictor: Predictor, facts: dict[str, Any], history: list[dict[str, Any]], found: dict[str, Report]
) -> MultitaskTrained:
    scores = {role: one.figures() for role, one in found.items()}
    return MultitaskTrained(predictor, facts, history, scores, found["dev"].confusions)


def _batches(recipe: MultitaskRecipe, parts: MultitaskParts, seed: int) -> MultitaskBatches:
    tokenizer = parts.encoder.tokenizer
    return MultitaskBatches(
        parts.tasks,
        task_tokenizers(tokenizer, {task.name: task.setup.objective.max_length for task in parts.tasks}),
        batch_size=recipe.train.batch_size,
        mixing=recipe.mixing,
        pad_id=int(tokenizer.pad_token_id or 0),
        seed=seed,
    )


def _look(predictor: Predictor, tasks: Sequence[TrainingTask], *, bf16: bool) -> dict[str, float]:
    """Dev scores while training, in its precision: float32 would take several times as long as the GPU needs."""
    with torch.autocast(predictor.model.encoder.device.type, dtype=torch.bfloat16, enabled=bf16):
        return report(predictor, tasks).figures()


def _roles(tasks: Sequence[TrainingTask]) -> list[str]:
    """dev, and test where a task has labelled rows of it."""
    return ["dev", *(["test"] if any("test" in task.parts for task in tasks) else [])]


def _tell_cut(tasks: Sequence[TrainingTask], shares: Mapping[str, float]) -> None:
    for name, length in ((task.name, task.setup.objective.max_length) for task in tasks):
        if shares.get(name):
            log.warning(
                "task %s: %.1f %% of its texts were longer than max_length = %d tokens, and were cut there",
                name, 100 * shares[name], length,
            )  # fmt: skip


def _sizes(tasks: Sequence[TrainingTask]) -> str:
    return ", ".join(f"{task.name} ({len(task.parts['train']):,} rows)" for task in tasks)


def _check_one_process() -> None:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("multitask training runs in one process; start it without torchrun")
