"""A trained multitask model: it predicts, and is saved as a sentence-transformers folder with its tasks' heads."""

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

from layerwise.encoder import (
    Array,
    Progress,
    SentenceTokenizer,
    Tokens,
    check_sentences,
    no_progress,
    stream,
    window_rows,
    windows_of,
)
from layerwise.errors import InputError, ModelError
from layerwise.model import LayerModel
from layerwise.predict.heads import TaskHead
from layerwise.predict.objective import TaskSetup
from layerwise.predict.saved_tasks import read_tasks, write_tasks
from layerwise.registry import check_known
from layerwise.texts import unique_texts

_ROWS = 4096  # through a head at a time
Texts = Sequence[str] | Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Predictions:
    """The predictions for n rows.

    Args:
        classes: The task's classes; none for sts.
        labels: The likeliest class of each row; none for sts.
        probabilities: (n, classes); (n, 0) for sts.
        numbers: (n,) scores on the task's scale for sts, not clipped to it; otherwise (0,).
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
        heads: By the task's name; each has its task's setup.
        labels: The classes of each task in their order; none for sts.
        remember: Keep the tokens of all texts, for a predictor that gets the same texts again and again.
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
            lengths[name] = min(head.setup.objective.max_length, encoder.max_length)
        kind = RememberedTokens if self.remember else SentenceTokenizer
        self._tokenizers.update(task_tokenizers(encoder.tokenizer, lengths, kind=kind))

    @classmethod
    def load(cls, folder: str | os.PathLike[str], **options: Any) -> Self:
        """Load what `save` wrote; options as for `LayerEncoder`: device, dtype, …"""
        model = LayerModel.load(folder, **options)
        heads, labels = read_tasks(model.encoder.folder.root, model.width)
        return cls(model, heads, labels)

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save a folder as `LayerModel.save` does, with tasks.json and tasks/NAME.safetensors: whole or not at all."""
        self.model.save(folder, overwrite=overwrite, extra=lambda place: write_tasks(place, self.heads, self.labels))

    def setup(self, task: str) -> TaskSetup:
        """Return a task with its objective, by name."""
        check_known(task, sorted(self.heads), "task")
        return self.heads[task].setup

    def predict(self, task: str, inputs: Texts, *, progress: Progress = no_progress) -> Predictions:
        """Predict texts, or pairs of texts for a pair task, in order.

        `progress` is called with numbers of texts as they are embedded, each different text once.

        >>> predictor.predict("sts", [("A cat sat.", "A cat was sitting.")]).numbers  # doctest: +SKIP
        array([4.3])
        """
        columns = _columns(self.setup(task), inputs)
        return self.predictions(task, self.outputs(task, columns, progress=progress))

    def predictions(self, task: str, outputs: NDArray[np.floating[Any]]) -> Predictions:
        """Convert a head's outputs to labels and probabilities, or numbers; raise if the model has diverged."""
        if not np.isfinite(outputs).all():
            raise ModelError(
                f"task {task!r}: the model gives no numbers (NaN or infinite), so its training has diverged; train it "
                f"again at a lower rate"
            )
        classes, none = self.labels[task], np.empty(0)
        if not self.setup(task).task.has_classes:
            return Predictions((), (), np.empty((len(outputs), 0)), outputs.astype(np.float64))
        labels = tuple(classes[number] for number in predicted_classes(outputs))
        return Predictions(classes, labels, probabilities(outputs), none)

    def outputs(
        self, task: str, columns: Sequence[Sequence[str]], *, progress: Progress = no_progress
    ) -> NDArray[np.float32]:
        """The outputs of the task's head for n rows of texts: (n, classes) logits, or (n,); heads run in float32."""
        with _in_eval_mode(*_modules(self.model)), torch.inference_mode():
            embedded = embed_columns(self.model, columns, self._tokenizers[task], progress=progress)
        return self.head_outputs(task, embedded)

    def head_outputs(self, task: str, embedded: Sequence[Array]) -> NDArray[np.float32]:
        """Like `outputs`, for embeddings: (n, width) for each column."""
        head, device = self.heads[task], self.model.encoder.device
        with _in_eval_mode(head), torch.inference_mode(), torch.autocast(device.type, enabled=False):
            parts = [
                head(*(torch.from_numpy(column[start : start + _ROWS]).to(device) for column in embedded)).cpu()
                for start in range(0, len(embedded[0]), _ROWS)
            ]
        outputs: NDArray[np.float32] = torch.cat(parts).numpy()
        return outputs


def predicted_classes(outputs: NDArray[Any]) -> NDArray[np.int64]:
    """Return the most likely class of each row of (n, classes) logits, (n,) binary logits, or (n,) class numbers."""
    if outputs.ndim == 2:
        return np.asarray(np.argmax(outputs, axis=1), dtype=np.int64)
    return np.asarray(outputs > 0 if np.issubdtype(outputs.dtype, np.floating) else outputs, dtype=np.int64)


def probabilities(outputs: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """(n, classes) logits by softmax, (n,) logits of the second class by the logistic function -> (n, classes)"""
    logits = outputs.astype(np.float64)
    if logits.ndim == 1:
        logits = np.stack([np.zeros_like(logits), logits], axis=1)  # its softmax is the logistic function
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return shares


def _columns(setup: TaskSetup, inputs: Texts) -> list[list[str]]:
    """Texts, or pairs of texts, as checked columns."""
    task = setup.task
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
    """Format a value in one line for errors, as an array's `repr` has several."""
    return shorten(repr(value), 100, placeholder=" …")


def _is_pair(row: Any) -> bool:
    """Whether a row is two values in order; `check_sentences` checks each."""
    if isinstance(row, np.ndarray):
        return bool(row.shape == (2,))
    return isinstance(row, Sequence) and not isinstance(row, str) and len(row) == 2


def _modules(model: LayerModel) -> list[nn.Module]:
    """Return the modules between tokens and embeddings, including the network of an attention mix."""
    networks = [model.mix.fitted] if model.mix.is_learned and model.mix.fitted is not None else []
    return [model.encoder.model, *networks, *model.heads]


@contextmanager
def _in_eval_mode(*modules: nn.Module) -> Iterator[None]:
    """Set modules to eval mode and restore their modes on exit."""
    modes = {module: module.training for root in modules for module in root.modules()}
    for root in modules:
        root.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


class RememberedTokens(SentenceTokenizer):
    """A tokenizer that caches the tokens of every text. It does not count truncated texts."""

    def __init__(self, tokenizer: Any, *, max_length: int) -> None:
        super().__init__(tokenizer, max_length=max_length)
        self._known: dict[str, list[int]] = {}

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """Tokens of texts; a known text is not tokenised again."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, super().__call__(new).ids, strict=True))
        return Tokens.of(self._known[text] for text in texts)


def task_tokenizers(
    tokenizer: Any, lengths: Mapping[str, int], *, kind: type[SentenceTokenizer] = SentenceTokenizer
) -> dict[str, SentenceTokenizer]:
    """Create a tokenizer per task; tasks of the same length share one, as building one takes 0.1 s."""
    by_length = {length: kind(tokenizer, max_length=length) for length in dict.fromkeys(lengths.values())}
    return {name: by_length[length] for name, length in lengths.items()}


def embed_columns(
    model: LayerModel,
    columns: Sequence[Sequence[str]],
    tokenizer: SentenceTokenizer,
    *,
    progress: Progress = no_progress,
) -> tuple[Array, ...]:
    """Embeddings of each column's n texts, (n, width) each, every different text once; the tokenizer cuts them."""
    texts, rows = unique_texts(*columns)
    encoder = model.encoder
    parts = stream(
        windows_of(texts, window_rows(4 * model.width)),
        tokenizer=tokenizer,
        pad_id=int(encoder.tokenizer.pad_token_id or 0),
        forward=lambda tokens, mask: model.forward(tokens, mask).float(),  # under autocast a head gives bfloat16
        device=encoder.device,
        budget=encoder.budget,
        progress=progress,
    )
    embeddings = np.concatenate(list(parts))
    return tuple(embeddings[row] for row in rows)
