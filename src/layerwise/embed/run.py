"""Running an embedding job: every row of a source to shards, resumable after any kind of stop."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layerwise.embed.engine import embed_chunks, embed_in_processes
from layerwise.embed.job import Chunk, EmbedJob, ModelChoice, chunks
from layerwise.embed.shards import ShardFolder, join_shards
from layerwise.encoder import Progress, no_progress
from layerwise.errors import InputError


@dataclass(frozen=True)
class EmbedResult:
    """What a run did: rows written now, rows that an earlier run had written, and how long it took."""

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
    """Embed every row of the job's source. The same call after any kind of stop resumes the run.

    Args:
        job: What to embed and how.
        choice: With which model.
        shard_folder: Where shards go.
        joined: One file to join the shards into at the end.
        processes: How many processes share the work, each with the model in its memory.
        devices: Their devices, in turn; without any, what the model is loaded for.
        overwrite: Start again, and replace the shards of an earlier run.
        progress: Called with numbers of rows as they are embedded, and with those of each shard written before.
    """
    if processes < 1:
        raise InputError(f"processes must be 1 or more, not {processes}")
    if joined is not None and joined.exists() and not overwrite:
        raise InputError(f"{joined}: exists already; give another name, or --overwrite")
    start = time.perf_counter()
    model = choice.load(devices[0] if devices else None)
    width = model.truncated_width(job.truncate_dim)
    job = replace(job, prompt=model.prompt(job.prompt_name, job.prompt), prompt_name=None)
    folder = ShardFolder(shard_folder, job)
    facts = {"loading": choice.record(), "source": job.source_record(), "width": width}
    with folder.opened(job.settings(model), overwrite=overwrite, facts=facts):
        count = _Count(progress)
        todo = count.unwritten(chunks(job), folder)
        if processes == 1:
            embed_chunks(model, todo, job, folder, count.written, progress)
        else:
            del model  # the workers load theirs
            embed_in_processes(todo, choice, job, shard_folder, processes, devices, count.written, progress)
        folder.check_end(count.shards)
        folder.finish(count.shards)
    if joined is not None:
        join_shards([folder.path(number) for number in range(count.shards)], joined)
    seconds = time.perf_counter() - start
    return EmbedResult(str(joined or shard_folder), count.new, count.resumed, count.shards, width, seconds)


class _Count:
    """Counts shards and rows, those written now and those of an earlier run."""

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
