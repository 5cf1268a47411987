"""Runs an embedding job: embeds every row of a source into shards, resumable after any interruption."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layerwise.embed.bad_rows import BadRow, check_bad_rows_file, write_bad_rows
from layerwise.embed.engine import Work
from layerwise.embed.engines import choose_engine
from layerwise.embed.job import Chunk, EmbedJob, ModelChoice, chunks
from layerwise.embed.joining import join_shards
from layerwise.embed.shards import ShardFolder
from layerwise.encoder import Progress, no_progress
from layerwise.errors import InputError
from layerwise.stores import StorePath, place_of


@dataclass(frozen=True)
class EmbedResult:
    """The result of a run: rows and tokens embedded now, rows written by earlier runs, and the time.

    `set_aside` counts the rows that could not be embedded, those of earlier runs too.
    """

    out: str
    rows: int
    resumed: int
    shards: int
    width: int
    seconds: float
    tokens: int = 0
    set_aside: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Throughput of the whole run, including loading the model."""
        return self.tokens / self.seconds

    def cost_per_million_tokens(self, price_per_hour: float) -> float | None:
        """Return the cost of a million tokens on a machine of this price, including loading; None without tokens."""
        return price_per_hour * self.seconds / 3600 / (self.tokens / 1e6) if self.tokens else None


def run_embed(
    job: EmbedJob,
    choice: ModelChoice,
    shard_folder: str | Path | StorePath,
    *,
    joined: str | Path | StorePath | None = None,
    engine: str = "local",
    address: str | None = None,
    processes: int | None = None,
    devices: Sequence[str] = (),
    overwrite: bool = False,
    bad_rows: str | Path | StorePath | None = None,
    progress: Progress = no_progress,
) -> EmbedResult:
    """Embed every row of the job's source. After any interruption, the same call resumes the run.

    Args:
        job: What to embed and how.
        choice: With which model.
        shard_folder: Where shards go: a folder, or a URL of an object store.
        joined: One file to join the shards into at the end.
        engine: "local" for this machine, "ray" for the machines of a Ray cluster.
        address: Of the Ray cluster: "auto" for the one that this machine belongs to, or HOST:PORT. Without, that of
            $RAY_ADDRESS, or a cluster on this machine alone that ends with the run.
        processes: How many processes share the work, each with the model in its memory. Without, one; on a cluster, one
            for each GPU, or one for each machine where there are none.
        devices: Their devices, in turn; without any, what the model is loaded for.
        overwrite: Start again, and replace the shards of an earlier run.
        bad_rows: A file (*.jsonl, *.csv or *.tsv) for rows that cannot be embedded; without, the first one is an error.
        progress: Called with numbers of rows as they are embedded, and with those of each shard written before.
    """
    chosen = choose_engine(engine, processes=processes, devices=devices, address=address)
    shard_folder = place_of(shard_folder)
    joined = None if joined is None else place_of(joined)
    bad_rows = None if bad_rows is None else place_of(bad_rows)
    if joined is not None and joined.exists() and not overwrite:
        raise InputError(f"{joined}: exists already; give another name, or --overwrite")
    if bad_rows is not None:
        check_bad_rows_file(bad_rows)
        job = replace(job, set_aside=True)
    start = time.perf_counter()
    model = choice.load(chosen.device)
    width = model.truncated_width(job.truncate_dim)
    job = replace(job, prompt=model.prompt(job.prompt_name, job.prompt), prompt_name=None)
    folder = ShardFolder(shard_folder, job)
    facts = {"loading": choice.record(), "source": job.source_record(), "width": width}
    settings = job.settings(model)
    local_model = model if chosen.embeds_here else None
    del model  # other processes load their models themselves
    with folder.opened(settings, overwrite=overwrite, facts=facts):
        count = _Count(folder, progress)
        todo = count.unwritten(chunks(job, count.bad.append))
        work = Work(todo, choice, job, folder, settings, count.written, progress, count.add_tokens, local_model)
        chosen.embed(work)
        folder.check_end(count.shards)
        if bad_rows is not None:
            write_bad_rows(count.bad, bad_rows)
        if not count.new + count.resumed:
            raise InputError(
                f"{job.source.name}: every row was set aside, see {bad_rows}; check the model and its dtype"
            )
        folder.finish(count.shards, set_aside=len(count.bad))
    if joined is not None:
        join_shards([folder.path(number) for number in range(count.shards)], joined)
    seconds = time.perf_counter() - start
    return EmbedResult(
        str(joined or shard_folder),
        count.new,
        count.resumed,
        count.shards,
        width,
        seconds,
        tokens=count.tokens,
        set_aside=len(count.bad),
    )


class _Count:
    """Counts shards and rows, written now and by earlier runs, and collects rows that are set aside."""

    def __init__(self, folder: ShardFolder, progress: Progress) -> None:
        self.shards = self.new = self.resumed = self.tokens = 0
        self.bad: list[BadRow] = []
        self._folder = folder
        self._progress = progress

    def unwritten(self, all_chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Iterate over the chunks without a shard."""
        for chunk in all_chunks:
            self.shards = chunk.number + 1
            if self._folder.has(chunk):
                self.resumed += self._rows_of(chunk)
                self._progress(len(chunk.rows))
            else:
                yield chunk

    def written(self, chunk: Chunk) -> None:
        """Count a written shard."""
        self.new += self._rows_of(chunk)

    def add_tokens(self, tokens: int) -> None:
        """Count embedded tokens."""
        self.tokens += tokens

    def _rows_of(self, chunk: Chunk) -> int:
        """Return the number of rows in the chunk's shard."""
        bad = self._folder.bad_rows(chunk.number) if self._folder.job.set_aside else []
        self.bad += bad
        return len(chunk.rows) - len(bad)
