"""A trained multitask model: predicts, and is saved as a sentence-transformers folder with its tasks' heads beside."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from layerwise.encoder.layer_encoder import check_sentences
from layerwise.encoder.tokens import SentenceTokenizer
from layerwise.errors import InputError, ModelError
from layerwise.mixes import LayerAttention
from layerwise.model.layer_model import LayerModel
from layerwise.multitask.embed_texts import RememberedTokens, embed_columns, task_tokenizers
from layerwise.multitask.heads import TaskHead
from layerwise.multitask.metrics import predicted_classes
from layerwise.multitask.task import TaskSettings
from layerwise.registry import did_you_mean

_ROWS = 4096  # through a head at a time
Texts = Sequence[str] | Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Predictions:
    """What was predicted for n rows.

    Args:
        classes: The task's classes; none for similarity.
        labels: The likeliest class of each row, or nothing for similarity.
        probabilities: (n, classes); (n, 0) for similarity.
        numbers: (n,) on the task's scale for similarity; the network may go beyond it, and nothing is cut. Else (0,).
    """

    classes: tuple[str, ...]
    labels: tuple[str, ...]
    probabilities: NDArray[np.float64]
    numbers: NDArray[np.float64]


@dataclass(frozen=True)
class Predictor:
    """An encoder with its mix, and a head for each task.

    Args:
        model: Makes the embeddings.
        heads: By the task's name; each knows its task's settings.
        labels: The classes of each task in their order; none for similarity.
        remember: Keep the tokens of all texts that it sees, for one that is asked for the same texts again and again.
    """

    model: LayerModel
    heads: Mapping[str, TaskHead]
    labels: Mapping[str, tuple[str, ...]]
    remember: bool = False
    _tokenizers: dict[str, SentenceTokenizer] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        encoder, lengths = self.model.encoder, {}
        for name, head in self.heads.items():
            head.to(encoder.device)
            lengths[name] = min(head.settings.max_length, encoder.max_length)
        kind = RememberedTokens if self.remember else SentenceTokenizer
        self._tokenizers.update(task_tokenizers(encoder.tokenizer, lengths, kind=kind))

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **options: Any) -> Self:
        """What `save` wrote; options as for `LayerEncoder`: device, dtype, …"""
        from layerwise.multitask.saved_tasks import read_tasks

        model = LayerModel.load(folder, **options)
        heads, labels = read_tasks(model.encoder.folder.root, model.width)
        return cls(model, heads, labels)

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """A folder as `LayerModel.save` writes it, with tasks.json and tasks/NAME.safetensors: whole or not at all."""
        from layerwise.multitask.saved_tasks import write_tasks

        self.model.save(folder, overwrite=overwrite, extra=lambda place: write_tasks(place, self.heads, self.labels))

    @property
    def settings(self) -> dict[str, TaskSettings]:
        """Each task's settings."""
        return {name: head.settings for name, head in self.heads.items()}

    def task(self, name: str) -> TaskSettings:
        """A task by its name; a miss says which there are."""
        if name not in self.heads:
            guess = did_you_mean(name, self.heads)
            raise InputError(f"Unknown task {name!r}.{guess} Known: {', '.join(sorted(self.heads))}")
        return self.heads[name].settings

    def predict(self, task: str, inputs: Texts) -> Predictions:
        """Predictions for texts, or for pairs of texts where the task takes two, rows in their order.

        >>> predictor.predict("sts", [("A cat sat.", "A cat was sitting.")]).numbers  # doctest: +SKIP
        array([4.3])
        """
        columns = _columns(self.task(task), inputs)
        return self.predictions(task, self.outputs(task, columns))

    def predictions(self, task: str, outputs: NDArray[np.floating[Any]]) -> Predictions:
        """What a head's outputs say; those of a model that has diverged say nothing."""
        if not np.isfinite(outputs).all():
            raise ModelError(
                f"task {task!r}: the model gives no numbers (NaN or infinite), so its training has diverged; train it "
                f"again at a lower rate"
            )
        classes, none = self.labels[task], np.empty(0)
        if self.task(task).kind == "similarity":
            return Predictions((), (), np.empty((len(outputs), 0)), outputs.astype(np.float64))
        labels = tuple(classes[number] for number in predicted_classes(outputs))
        return Predictions(classes, labels, probabilities(outputs), none)

    def outputs(self, task: str, columns: Sequence[Sequence[str]]) -> NDArray[np.float32]:
        """What the task's head gives for n rows of texts: (n, classes) logits, or (n,); heads run in float32."""
        head, device = self.heads[task], self.model.encoder.device
        with _in_eval_mode(*_modules(self.model), head), torch.inference_mode():
            embedded = embed_columns(self.model, columns, self._tokenizers[task])
            with torch.autocast(device.type, enabled=False):
                parts = [
                    head(*(torch.from_numpy(column[start : start + _ROWS]).to(device) for column in embedded)).cpu()
                    for start in range(0, len(columns[0]), _ROWS)
                ]
        found: NDArray[np.float32] = torch.cat(parts).numpy()
        return found


def probabilities(outputs: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """(n, classes) logits by softmax, (n,) logits of the second class by the logistic function -> (n, classes)"""
    logits = outputs.astype(np.float64)
    if logits.ndim == 1:
        logits = np.stack([np.zeros_like(logits), logits], axis=1)  # whose softmax is just that
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return shares


def _columns(task: TaskSettings, inputs: Texts) -> list[list[str]]:
    """Rows to columns, checked: texts, or pairs of them."""
    if isinstance(inputs, str) or not isinstance(inputs, Iterable):
        came = "one string" if isinstance(inputs, str) else _shown(inputs)
        raise InputError(f"inputs is {came}; give a list of texts, or of pairs of texts")
    rows: list[Any] = list(inputs)
    if not rows:
        raise InputError(f"task {task.name!r}: no rows to predict; give 1 or more")
    for number, row in enumerate(rows):
        if not (_is_pair(row) if task.is_pair else isinstance(row, str)):
            wanted = "pairs of texts" if task.is_pair else "one text a row"
            raise InputError(f"row {number} is {_shown(row)}; task {task.name!r} takes {wanted}")
    return [check_sentences(column) for column in zip(*rows, strict=True)] if task.is_pair else [check_sentences(rows)]


def _shown(value: Any) -> str:
    """For errors, in one line: an array's has several."""
    return shorten(repr(value), 100, placeholder=" …")


def _is_pair(row: Any) -> bool:
    """Two in a certain order, whatever they are: check_sentences looks at each."""
    if isinstance(row, np.ndarray):
        return bool(row.shape == (2,))
    return isinstance(row, Sequence) and not isinstance(row, str) and len(row) == 2


def _modules(model: LayerModel) -> list[nn.Module]:
    """All that stands between tokens and embeddings: of the mixes, attention has a network."""
    networks = [model.mix.trained] if isinstance(model.mix, LayerAttention) else []
    return [model.encoder.model, *networks, *model.heads]


@contextmanager
def _in_eval_mode(*modules: nn.Module) -> Iterator[None]:
    """Without dropout and random activations; every module's mode is put back."""
    modes = {module: module.training for whole in modules for module in whole.modules()}
    for whole in modules:
        whole.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
