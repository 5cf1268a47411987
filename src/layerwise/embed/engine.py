"""The protocol of engines, the in-process engine, and the job of workers in other processes.

An engine embeds chunks and writes their shards: in this process (here), in several (processes.py) or on the machines
of a Ray cluster (ray_engine.py). The main process reads the input, holds the lock of the folder and counts; workers
receive chunks, write each shard atomically, and report.
"""

import logging
import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from layerwise.embed.job import Chunk, EmbedJob, ModelChoice
from layerwise.embed.shards import ShardFolder
from layerwise.encoder import Progress, no_progress
from layerwise.errors import OUT_OF_MEMORY, LayerwiseError, ModelError, is_memory_shortage
from layerwise.model import LayerModel

_MOST_WRITERS = 3  # for a GPU, which embeds faster than one thread writes
_IDLE_SECONDS = 5.0


@dataclass(frozen=True)
class Work:
    """The arguments of an engine: chunks to embed, the model, the folder, and callbacks.

    `model` is the model loaded in this process, for engines that embed in it. `settings` are those of the manifest.
    `written` is called for each shard, `progress` with numbers of embedded rows, `on_tokens` with numbers of tokens.
    """

    todo: Iterable[Chunk]
    choice: ModelChoice
    job: EmbedJob
    folder: ShardFolder
    settings: Mapping[str, Any]
    written: Callable[[Chunk], object]
    progress: Progress = no_progress
    on_tokens: Progress = no_progress
    model: LayerModel | None = None


class Engine(Protocol):
    """Embeds every chunk of a run and writes its shard. After an error, the run is resumed from the complete shards."""

    @property
    def embeds_here(self) -> bool:
        """Whether it uses the model loaded in this process."""

    @property
    def device(self) -> str | None:
        """The device of this process's model; None for that of the model's options."""

    def embed(self, work: Work) -> None:
        """Run the work to its end, or raise a one-line error."""


@dataclass(frozen=True)
class ThisProcess:
    """The engine that embeds in this process."""

    device: str | None = None
    embeds_here = True

    def embed(self, work: Work) -> None:
        """Embed and write the chunks in order."""
        model = work.choice.load(self.device) if work.model is None else work.model
        embed_chunks(model, work.todo, work.job, work.folder, work.written, work.progress, work.on_tokens)


def embed_chunks(
    model: LayerModel,
    todo: Iterable[Chunk],
    job: EmbedJob,
    folder: ShardFolder,
    written: Callable[[Chunk], object],
    progress: Progress = no_progress,
    on_tokens: Progress = no_progress,
) -> None:
    """Embed chunks, and write their shards in threads. `written` is called for each shard.

    `progress` is called with the rows of each batch as they are embedded, `on_tokens` with the tokens of each chunk.
    """
    waiting: deque[Chunk] = deque()
    writes: deque[tuple[Chunk, Future[None]]] = deque()

    def windows() -> Iterator[list[str]]:
        for chunk in todo:
            waiting.append(chunk)
            yield chunk.texts

    def finish_writes(*, leave: int) -> None:
        while len(writes) > leave:
            chunk, write = writes.popleft()
            write.result()
            written(chunk)

    count = 1 if model.encoder.device.type == "cpu" else _MOST_WRITERS
    with ThreadPoolExecutor(max_workers=count) as writers:
        stream = model.stream(
            windows(),
            normalize=job.normalize,
            truncate_dim=job.truncate_dim,
            progress=progress,
            on_tokens=on_tokens,
            check_finite=not job.set_aside,
        )
        for embeddings in stream:
            chunk = waiting.popleft()
            writes.append((chunk, writers.submit(folder.write, chunk, embeddings)))
            finish_writes(leave=count + 1)
        finish_writes(leave=0)


@dataclass(frozen=True)
class Ready:
    """A worker's report: its model is loaded."""


@dataclass(frozen=True)
class Embedded:
    """A worker's report: rows that are embedded and not yet written."""

    rows: int


@dataclass(frozen=True)
class Written:
    """A worker's report: a shard is written. Tokens are counted here, so that a worker's death counts none twice."""

    number: int
    tokens: int


Report = Ready | Embedded | Written | LayerwiseError


@dataclass(frozen=True)
class Flush:
    """A marker in a queue of chunks: write and report what is embedded; more chunks may follow."""


@dataclass(frozen=True)
class WorkerJob:
    """The configuration of a worker.

    With `settings`, its model and options must match the manifest, as another machine may have other files.
    """

    choice: ModelChoice
    job: EmbedJob
    folder: ShardFolder
    device: str | None
    threads: int
    settings: Mapping[str, Any] | None = None
    informs: bool = False  # of exported graphs and the loss of int8: the first of several workers does

    def run(self, tasks: Any, report: Callable[[Report], object]) -> None:
        """Load the model, then embed and write chunks from the queue until None."""
        import torch

        logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
        if self.informs:
            logging.getLogger("layerwise.encoder").setLevel(logging.INFO)
        torch.set_num_threads(self.threads)
        try:
            self.folder.check_run()
            model = self.choice.load(self.device)
            self._check(model)
            if self.informs and model.encoder.precision == "int8":
                model.encode(["-"])  # tells the loss, even if faster workers leave it nothing to embed
            report(Ready())
            self._embed(model, tasks, report)
        except LayerwiseError as error:
            report(LayerwiseError(str(error)))
        except (MemoryError, OSError, RuntimeError, ImportError) as error:
            if not is_memory_shortage(error):
                raise
            report(LayerwiseError(OUT_OF_MEMORY))

    def _check(self, model: LayerModel) -> None:
        actual = {} if self.settings is None else self.job.settings(model)
        for key, value in actual.items():
            if self.settings is not None and self.settings.get(key) != value:
                raise ModelError(
                    f"{self.choice.name}: a worker's {key} differs from that of this process; put the same model and "
                    f"the same version of layerwise on every machine, and use processors of one kind for int8"
                )

    def _embed(self, model: LayerModel, tasks: Any, report: Callable[[Report], object]) -> None:
        tokens: deque[int] = deque()
        stream = _Stream(tasks)
        while stream.wait():
            embed_chunks(
                model,
                stream,
                self.job,
                self.folder,
                lambda chunk: report(Written(chunk.number, tokens.popleft())),
                lambda rows: report(Embedded(rows)),
                tokens.append,
            )


class _Stream:
    """Iterates over the chunks of a queue up to a `Flush`, None, or a timeout.

    The model and the writers work ahead, so everything is written and reported only at the end of an iteration.
    """

    def __init__(self, tasks: Any) -> None:
        self._tasks = tasks
        self._next: Any = Flush()

    def wait(self) -> bool:
        """Wait for a chunk; False if there are no more."""
        while isinstance(self._next, Flush):
            self._next = self._tasks.get()
        return self._next is not None

    def __iter__(self) -> Iterator[Chunk]:
        while isinstance(self._next, Chunk):
            yield self._next
            try:
                self._next = self._tasks.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                self._next = Flush()
