"""Running a job: in this process, or dealt out to several."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from layerwise.embed.job import Chunk, EmbedJob, ModelChoice, chunks
from layerwise.embed.join import join_shards
from layerwise.embed.shards import ShardFolder
from layerwise.encoder.stream import Progress, no_progress
from layerwise.errors import InputError
from layerwise.model.layer_model import LayerModel

_WRITES_WAITING = 2


@dataclass(frozen=True)
class EmbedResult:
    """What a run did: rows written now, rows that were there already, and how long it took."""

    out: str
    rows: int
    resumed: int
    shards: int
    width: int
    seconds: float


def run_embed(
    job: EmbedJob,
    choice: ModelChoice,
    shard_folder: Path,
    *,
    joined: Path | None = None,
    processes: int = 1,
    devices: Sequence[str] = (),
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> EmbedResult:
    """Embed every row of the job's source. Run again after any kind of stop, it goes on where it was.

    Args:
        job: What to embed and how.
        choice: With which model.
        shard_folder: Where shards go.
        joined: One file to join the shards into at the end.
        processes: How many processes share the work, each with the model in its memory.
        devices: Their devices, in turn; without any, what the model is loaded for.
        overwrite: Begin anew although a run was begun there.
        progress: Told the number of rows each time a shard is there.
    """
    if processes < 1:
        raise InputError(f"processes must be 1 or more, not {processes}")
    if joined is not None and joined.exists() and not overwrite:
        raise InputError(f"{joined}: exists already; give another name, or --overwrite")
    began = time.perf_counter()
    model = choice.load(devices[0] if devices else None)
    width = model.kept_width(job.truncate_dim)
    job = replace(job, prompt=model.prompt(job.prompt_name, job.prompt), prompt_name=None)
    folder = ShardFolder(shard_folder, job)
    with folder.opened(job.settings(model), overwrite=overwrite):
        count = _Count(progress)
        todo = count.unwritten(chunks(job), folder)
        if processes == 1:
            embed_chunks(model, todo, job, folder, count.written)
        else:
            from layerwise.embed.workers import deal_out

            del model  # the workers load their own
            deal_out(todo, choice, job, shard_folder, processes, devices, count.written)
        folder.check_end(count.shards)
    if joined is not None:
        join_shards([folder.path(number) for number in range(count.shards)], joined)
    seconds = time.perf_counter() - began
    return EmbedResult(str(joined or shard_folder), count.new, count.resumed, count.shards, width, seconds)


def embed_chunks(
    model: LayerModel,
    todo: Iterable[Chunk],
    job: EmbedJob,
    folder: ShardFolder,
    written: Callable[[Chunk], None],
) -> None:
    """Embed chunks and write their shards, the last ones while the model works on the next."""
    waiting: deque[Chunk] = deque()
    writes: deque[tuple[Chunk, Future[None]]] = deque()

    def windows() -> Iterator[list[str]]:
        for chunk in todo:
            waiting.append(chunk)
            yield chunk.texts

    def settle(most: int) -> None:
        while len(writes) > most:
            chunk, write = writes.popleft()
            write.result()
            written(chunk)

    with ThreadPoolExecutor(max_workers=1) as writer:
        for embeddings in model.stream(windows(), normalize=job.normalize, truncate_dim=job.truncate_dim):
            chunk = waiting.popleft()
            writes.append((chunk, writer.submit(folder.write, chunk, embeddings)))
            settle(_WRITES_WAITING)
        settle(0)


class _Count:
    """Counts shards and rows as they come to be, or are found."""

    def __init__(self, progress: Progress) -> None:
        self.shards = self.new = self.resumed = 0
        self._progress = progress

    def unwritten(self, all_chunks: Iterable[Chunk], folder: ShardFolder) -> Iterator[Chunk]:
        """The chunks that have no shard yet."""
        for chunk in all_chunks:
            self.shards = chunk.number + 1
            if folder.has(chunk):
                self.resumed += len(chunk.rows)
                self._progress(len(chunk.rows))
            else:
                yield chunk

    def written(self, chunk: Chunk) -> None:
        """A shard has been written."""
        self.new += len(chunk.rows)
        self._progress(len(chunk.rows))
