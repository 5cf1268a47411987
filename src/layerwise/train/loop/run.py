"""`train`: one job with one seed, from the encoder to the trained model."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from layerwise.train.loop.callbacks import METRICS, OnStep, make_callbacks, read_metrics
from layerwise.train.loop.checkpoints import checkpoint_step, checkpoint_to_resume, disk_errors
from layerwise.train.loop.host import training_arguments
from layerwise.train.loop.job import Job, M, R, S


@dataclass(frozen=True)
class Trained(Generic[S, M]):
    """A finished training.

    Attributes:
        model: The model with the weights of the best step.
        student: The trained module, with the same weights.
        facts: Recipe, data, seed, steps, time and scores.
        history: The lines of the metrics file.
    """

    model: M
    student: S
    facts: dict[str, Any]
    history: list[dict[str, Any]]


def train(
    job: Job[R, S, M],
    folder: str | os.PathLike[str],
    *,
    seed: int = 0,
    resume: bool = False,
    device: str | None = None,
    on_step: OnStep | None = None,
) -> Trained[S, M]:
    """Train a job with one seed.

    Args:
        job: The recipe with its data.
        folder: The folder of checkpoints and the metrics file. It must not hold checkpoints unless `resume`.
        seed: The seed of new weights, the order of the rows, dropout and sampling.
        resume: Resume from the last checkpoint in the folder, with the same losses as without the interruption.
        device: The device to train on.
        on_step: Called after each step with the step, the number of steps and the latest metrics.
    """
    start, folder = time.perf_counter(), Path(folder)
    job.check()
    checkpoint = checkpoint_to_resume(folder, resume=resume)
    job.prepare()
    encoder = job.load_encoder(device)
    arguments = training_arguments(job.recipe, folder, encoder.device, seed=seed, metric=job.metric, epochs=job.epochs)
    training = job.build(encoder, seed=seed)
    if checkpoint is not None:
        training.batches.resume_at(checkpoint_step(checkpoint))
    callbacks = make_callbacks(folder, on_step, patience=job.recipe.dev.patience)
    trainer = training.trainer(
        training.student, arguments, training.batches, scorer=training.scorer, callbacks=callbacks
    )
    with disk_errors(folder):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    training.student.eval()
    facts = {
        "recipe": without_folders(job.recipe.facts()),
        **job.data_facts(training),
        "seed": seed,
        "steps": trainer.state.global_step,
        "seconds": round(time.perf_counter() - start, 1),
        **job.score_facts(training, trainer.state),
    }
    return Trained(job.model(training, facts), training.student, facts, read_metrics(folder / METRICS))


def without_folders(facts: Any) -> Any:
    """Reduce local paths in facts to file and folder names; return plain JSON."""
    if isinstance(facts, dict):
        return {name: without_folders(value) for name, value in facts.items()}
    if isinstance(facts, list | tuple):
        return [without_folders(value) for value in facts]
    is_path = isinstance(facts, str) and os.sep in facts and Path(facts).expanduser().exists()
    return Path(facts).name if is_path else facts
