"""Requests in the queue: a job, its waiting shares, and the pieces that run next."""

from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.encoder import Array, Prompt, Tokens, by_prompt
from layerwise.errors import ModelError
from layerwise.model import LayerModel


@dataclass(frozen=True, eq=False)
class MixedModel:
    """A model with its mix, and what follows from the mix, which each request needs several times.

    `needs` are the layers of each token pooling, by prompt; `width` is that of an embedding.
    """

    model: LayerModel
    layers: list[int]
    poolings: list[str]
    needs: dict[Prompt, dict[str, tuple[int, ...]]]
    width: int

    @classmethod
    def of(cls, model: LayerModel) -> "MixedModel":
        """Compute what follows from a model's mix."""
        layers, poolings, of_pooling = list(model.mix.layers), list(model.mix.poolings), model.mix.needs
        needs = {prompt: {name: of_pooling[name] for name in names} for prompt, names in by_prompt(poolings).items()}
        return cls(model, layers, poolings, needs, model.width)


@dataclass(frozen=True)
class TextPass:
    """The texts of a request within one prompt, and the layers needed of each token pooling."""

    prompt: Prompt
    tokens: Tokens
    needs: dict[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        """The number of tokens."""
        return len(self.tokens.numbers)


@dataclass(eq=False)
class Job:
    """A request's texts in the queue; `future` gets their embeddings (texts, width).

    A mix with views of several prompts has one pass per prompt; `tokens` is the total of all passes.
    """

    mixed: MixedModel
    passes: tuple[TextPass, ...]
    future: Future[Array] = field(default_factory=Future)
    waiting: int = 0  # tokens in the queue
    submitted: float = 0.0

    def __post_init__(self) -> None:
        count = len(self.passes[0].tokens)
        self.model, self.width = self.mixed.model, self.mixed.width
        self.tokens = sum(text_pass.size for text_pass in self.passes)
        self._is_done = np.zeros((len(self.passes), count), dtype=bool)
        self._embeddings: Array = np.empty((count, self.width), dtype=np.float32)
        self._views: Array | None = None
        if len(self.passes) > 1:
            shape = (count, len(self.mixed.poolings), len(self.mixed.layers), self.model.encoder.width)
            self._views = np.zeros(shape, dtype=np.float32)

    def put(self, number: int, rows: NDArray[np.int64], values: Array) -> None:
        """Store a pass's results for some rows; complete the job when nothing is missing."""
        if self._views is None:
            self._embeddings[rows] = values
        else:
            for name in self.passes[number].needs:
                place = self.mixed.poolings.index(name)
                self._views[rows, place] = values[:, place]
        self._is_done[number, rows] = True
        if self._is_done.all():
            self._finish()

    def fail(self, error: BaseException) -> None:
        """Set the error on the future unless it is done."""
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def _finish(self) -> None:
        if self._views is not None:
            with torch.inference_mode():
                views = torch.from_numpy(self._views).to(self.model.encoder.device)
                self._embeddings = embedded(self.model, views).cpu().numpy()
        try:
            self.model.encoder.check_finite(self._embeddings)
        except ModelError as error:
            self.fail(error)
            return
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_result(self._embeddings)


@dataclass(eq=False)
class Share:
    """The rows of a pass, from `start`, that are still in the queue."""

    job: Job
    number: int
    start: int = 0

    @property
    def text_pass(self) -> TextPass:
        """The pass that it is of."""
        return self.job.passes[self.number]

    @property
    def group(self) -> tuple[Prompt, LayerModel | None]:
        """What can share a batch: texts within one prompt; SBERT-WK reads token states and is not shared."""
        model = self.job.model if self.job.model.mix.reads_tokens else None
        return self.text_pass.prompt, model

    @property
    def is_finished(self) -> bool:
        """Whether no rows are left, or the future is done."""
        return self.start >= len(self.text_pass.tokens) or self.job.future.done()

    def take(self, room: int) -> "Piece":
        """Take the next rows of at most `room` tokens, at least one row."""
        lengths = self.text_pass.tokens.lengths[self.start :]
        count, size = 1, int(lengths[0])
        if len(lengths) > 1:
            sizes = np.cumsum(lengths)
            count = max(1, int(np.searchsorted(sizes, room, side="right")))
            size = int(sizes[count - 1])
        stop = self.start + count
        piece = Piece(self.job, self.number, range(self.start, stop), size)
        self.start = stop
        self.job.waiting -= size
        return piece


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows of a pass that run in the next batches, and their number of tokens."""

    job: Job
    number: int
    rows: range
    size: int

    @property
    def text_pass(self) -> TextPass:
        """The pass that it is of."""
        return self.job.passes[self.number]

    @property
    def tokens(self) -> Tokens:
        """The tokens of the piece's rows."""
        return self.text_pass.tokens.part(self.rows.start, self.rows.stop)


def embedded(model: LayerModel, views: Tensor) -> Tensor:
    """(n, poolings, layers, width) -> (n, width of the model)"""
    return model.apply_heads(model.mix.combine(views))
