"""`train`: from a recipe to a trained `LayerModel`."""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import EarlyStoppingCallback, TrainerCallback

from layerwise.encoder.layer_encoder import LayerEncoder
from layerwise.encoder.tokens import SentenceTokenizer
from layerwise.errors import InputError, TrainingError
from layerwise.model.layer_model import LayerModel
from layerwise.objectives import rank, world_size
from layerwise.train.batches import Batches
from layerwise.train.build import Parts, build
from layerwise.train.callbacks import LogAtLooks, MetricsFile, Progress, Told, read_metrics
from layerwise.train.corpus import Corpus
from layerwise.train.corpus_stream import StreamedCorpus
from layerwise.train.dev import DevScore
from layerwise.train.engine import LayerTrainer
from layerwise.train.facts import training_facts
from layerwise.train.frozen import MOST_BYTES, Frozen, FrozenCopy, FrozenViews, bytes_needed
from layerwise.train.graphs import GraphedEncode
from layerwise.train.host import AnyRecipe, host_arguments, last_checkpoint, steps_done
from layerwise.train.passes import Passes
from layerwise.train.settings import Recipe
from layerwise.train.student import Student
from layerwise.train.text import load_corpus

log = logging.getLogger(__name__)
METRICS = "metrics.jsonl"
_REASON = 200  # letters of a library's own words
AnyCorpus = Corpus | StreamedCorpus


@dataclass(frozen=True)
class Trained:
    """A finished training: the model with its best weights, and how it went."""

    model: LayerModel
    parts: Parts
    facts: dict[str, Any]
    history: list[dict[str, Any]]


def train(
    recipe: Recipe,
    folder: str | os.PathLike[str],
    *,
    encoder: LayerEncoder | str | None = None,
    corpus: AnyCorpus | None = None,
    data: str | None = None,
    seed: int = 0,
    resume: bool = False,
    device: str | None = None,
    told: Told | None = None,
) -> Trained:
    """Train an encoder by a recipe.

    Args:
        recipe: What to do; see `layerwise.train.recipe`.
        folder: For checkpoints and the metrics file. One that holds checkpoints is refused unless `resume`.
        encoder: Instead of the recipe's. An encoder given as such is trained in place.
        corpus: Instead of the recipe's text.
        data: The data folder.
        seed: Of new weights, the order of the text, dropout and sampling.
        resume: Go on from the last checkpoint in the folder, to the same losses as without the break.
        device: Where to train.
        told: Called with the step, the number of steps and the latest figures.
    """
    began, folder = time.perf_counter(), Path(folder)
    checkpoint = checked_folder(folder, resume)
    dev = DevScore(recipe.dev, data) if recipe.dev.task else None  # errors of the data come before the model loads
    corpus = corpus if corpus is not None else load_corpus(recipe.data, data)
    if not isinstance(encoder, LayerEncoder):
        encoder = LayerEncoder(encoder or named_encoder(recipe), device=device or _own_device())
    _check_length(recipe, encoder)  # before the frozen copy reads everything
    arguments = host_arguments(recipe, folder, encoder.device, seed=seed, metric=dev.metric if dev else None)
    parts = build(recipe, encoder, seed=seed)
    frozen = _frozen(recipe, encoder, corpus)
    batches = _batches(recipe, encoder, corpus, seed, for_copy=isinstance(frozen, FrozenCopy))
    if checkpoint is not None:
        done = steps_done(checkpoint)
        batches.skip(done if isinstance(batches, Passes) else done % len(batches))
    trainer = LayerTrainer(
        parts.student,
        arguments,
        batches,
        scorer=(lambda: dev(parts.finished())) if dev else None,
        frozen=frozen,
        pull=recipe.pull,
        chunk=recipe.train.chunk,
        columns=_columns(recipe),
        graphs=_graphs(recipe, parts.student),
        callbacks=make_callbacks(folder, told, patience=recipe.dev.patience),
    )
    if rank() == 0:
        log.info("training on %s (%s), device %s", corpus.source, corpus.counts, encoder.device)
    with written(folder):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    parts.student.eval()
    facts = training_facts(recipe, corpus, seed, trainer.state, time.perf_counter() - began, dev, data)
    model = parts.finished(training=facts, fitted_on=(corpus.fitted_on,))
    return Trained(model, parts, facts, read_metrics(folder / METRICS))


def checked_folder(folder: Path, resume: bool) -> Path | None:
    """Make the folder; the checkpoint to go on from, if any."""
    found = last_checkpoint(folder)
    if found is not None and not resume:
        raise InputError(f"{folder}: holds checkpoints of a training; go on with --resume, or give another folder")
    if resume and found is None:
        log.warning("%s: no checkpoint to go on from; the training starts anew", folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: can't be made: {error.strerror}; give another folder") from error
    return found if resume else None


@contextmanager
def written(folder: Path) -> Iterator[None]:
    """A full or lost disk is one line; torch tells of it by a plain RuntimeError, and safetensors by its own."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "inline_container" not in str(error):
            raise
        reason = " ".join(str(error).split())[:_REASON]
        raise TrainingError(
            f"{folder}: can't be written: {reason}; make room, then the same command with --resume goes on"
        ) from error


def named_encoder(recipe: AnyRecipe) -> str:
    """The encoder that a recipe names; an error where it names none."""
    if not recipe.model.encoder:
        raise InputError(f"recipe {recipe.name!r} names no encoder; give one with --model")
    return recipe.model.encoder


def _own_device() -> str | None:
    """Under torchrun every process has a GPU of its own."""
    import torch

    if "LOCAL_RANK" in os.environ and torch.cuda.is_available():
        return f"cuda:{os.environ['LOCAL_RANK']}"
    return None


def _frozen(recipe: Recipe, encoder: LayerEncoder, corpus: AnyCorpus) -> Frozen | None:
    """The frozen copy's views: computed once where they can be kept."""
    settings = recipe.frozen
    if settings is None:
        return None
    kept = isinstance(corpus, Corpus) and bytes_needed(encoder, len(corpus), settings) <= MOST_BYTES
    if settings.dropout or not kept or not isinstance(corpus, Corpus):
        log.info("the frozen copy runs along: its views can't be kept")
        return FrozenCopy(encoder, settings)
    return FrozenViews.of(encoder, corpus.columns[settings.column], settings, max_length=recipe.data.max_length)


def _check_length(recipe: Recipe, encoder: LayerEncoder) -> None:
    if recipe.data.max_length > encoder.max_length:
        raise InputError(
            f"[data] max_length {recipe.data.max_length}: {encoder.name} takes at most {encoder.max_length} tokens"
        )


def _batches(
    recipe: Recipe, encoder: LayerEncoder, corpus: AnyCorpus, seed: int, *, for_copy: bool
) -> Batches | Passes:
    if corpus.rows is not None and corpus.rows < recipe.train.batch_size:
        log.warning(
            "batch_size %d: there are %d rows, so each batch is all of them", recipe.train.batch_size, corpus.rows
        )
    streamed = isinstance(corpus, StreamedCorpus)
    if streamed and recipe.train.steps is None:
        raise InputError("[data] stream: how many steps an epoch has is not known; give steps under [train]")
    if isinstance(corpus, Corpus) and not for_copy:
        corpus = replace(corpus, columns=corpus.columns[: recipe.student_columns])
    batches = Batches(
        corpus,
        SentenceTokenizer(encoder.tokenizer, max_length=recipe.data.max_length),
        batch_size=recipe.train.batch_size,
        copies=recipe.copies if corpus.width == 1 else 1,
        pad_id=int(encoder.tokenizer.pad_token_id or 0),
        seed=seed,
        bucket=recipe.data.bucket,
        rank=rank(),
        world=world_size(),
    )
    return Passes(batches) if streamed else batches


def _columns(recipe: Recipe) -> int:
    """How many columns, or dropout passes, the student reads."""
    return max(recipe.student_columns, recipe.copies)


def _graphs(recipe: Recipe, student: Student) -> GraphedEncode | None:
    """CUDA graphs where there is one GPU and the batch goes through the encoder at once."""
    settings = recipe.train
    if student.encoder.device.type != "cuda" or not settings.cuda_graphs or settings.chunk or world_size() > 1:
        return None
    rows = settings.batch_size * _columns(recipe)
    return GraphedEncode(student, rows=rows, longest=recipe.data.max_length, bf16=settings.precision == "bf16")


def make_callbacks(folder: Path, told: Told | None, *, patience: int) -> list[TrainerCallback]:
    """The metrics file, what is logged, progress, and early stopping where there is patience to lose."""
    found: list[TrainerCallback] = [LogAtLooks(), MetricsFile(folder / METRICS)]
    if told is not None:
        found.append(Progress(told))
    if patience:
        found.append(EarlyStoppingCallback(early_stopping_patience=patience))
    return found
