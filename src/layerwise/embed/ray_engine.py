"""The engine of a Ray cluster: workers on many machines, each with the model in its memory.

Ray starts the workers, transports chunks and reports, and detects dead workers. Everything else is as in other engines:
a shard is the unit of work, only this process reads the input and holds the folder's lock, and the state is in the
shards and the manifest, never in Ray. So a worker, a machine or this process may be killed at any moment: chunks of a
dead worker go to the others unless their shards are written, and the same command resumes the run.

Only Ray Core is used, as Ray Data's blocks, order and checkpoints would duplicate our shards.
"""

import logging
import math
import os
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from layerwise.embed.engine import Embedded, Flush, Ready, Report, Work, WorkerJob
from layerwise.embed.job import Chunk
from layerwise.embed.ray_cluster import checked_address, ray_cluster
from layerwise.errors import InputError, LayerwiseError, ModelError
from layerwise.extras import require

log = logging.getLogger(__name__)
_CHUNKS_PER_WORKER = 6  # chunks per worker: one is embedded, one tokenised, some are written or in transit
_RETRIES = 3
_WAIT_SECONDS, _GATHER_SECONDS, _PATIENCE_SECONDS = 1.0, 0.05, 60.0


@dataclass(frozen=True)
class RayCluster:
    """The engine of workers on a Ray cluster or, without an address, on this machine."""

    address: str | None = None
    processes: int | None = None
    worker_device: str | None = None
    embeds_here = False
    device = "cpu"

    @classmethod
    def of(cls, *, processes: int | None, devices: Sequence[str], address: str | None) -> "RayCluster":
        """Create the engine; check that Ray is installed, the address is reachable, and no GPU is chosen by number."""
        require("ray", "`--engine ray`", "ray")
        if len(devices) > 1 or any(":" in device for device in devices):
            raise InputError(
                f"Ray gives every worker a GPU of its own: pass --device cuda or cpu, not {','.join(devices)}"
            )
        return cls(checked_address(address), processes, devices[0] if devices else None)

    def embed(self, work: Work) -> None:
        """Start workers, feed them, replace those that die, and stop them."""
        chunks = iter(work.todo)
        first = next(chunks, None)
        if first is None:  # everything is written already
            return
        cpus = max(self.processes or 1, os.cpu_count() or 1)
        with work.folder.claimed() as folder, ray_cluster(self.address, cpus=cpus) as ray:
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            share = share_out(nodes, processes=self.processes, device=self.worker_device)
            job = WorkerJob(_absolute(work), work.job, folder, share.device, share.cpus, work.settings)
            pool = _WorkerPool(ray, share, job, work)
            try:
                pool.run(deque([first]), chunks)
            finally:
                pool.end()


@dataclass(frozen=True)
class Share:
    """The number of workers, and the resources of each."""

    workers: int
    cpus: int
    gpus: int
    device: str


def share_out(nodes: Sequence[Mapping[str, float]], *, processes: int | None, device: str | None) -> Share:
    """Distribute workers over machines with these resources: one per GPU, or one per machine if there are none.

    >>> share_out([{"CPU": 8.0}, {"CPU": 4.0}], processes=None, device=None)
    Share(workers=2, cpus=4, gpus=0, device='cpu')
    """
    gpus = int(sum(node.get("GPU", 0) for node in nodes))
    if device == "cuda" or (device is None and gpus):
        if (processes or 1) > gpus:
            raise InputError(
                f"{processes or 1} workers need a GPU each and the cluster has {gpus}; give fewer --processes, or "
                f"--device cpu"
            )
        return Share(processes or gpus, 1, 1, "cuda")
    cpus = [int(node.get("CPU", 0)) for node in nodes if node.get("CPU", 0) >= 1]
    workers = processes or len(cpus)
    if not cpus or workers > sum(cpus):
        raise InputError(f"{workers} workers need a CPU each and the cluster has {sum(cpus)}; give fewer --processes")
    per_machine = math.ceil(workers / len(cpus))
    return Share(workers, max(1, min(cpus) // per_machine), 0, device or "cpu")


def _absolute(work: Work) -> Any:
    """Make a model's local path absolute, as workers have other working directories."""
    folder = Path(work.choice.name).expanduser()
    return replace(work.choice, name=str(folder.absolute())) if folder.is_dir() else work.choice


class RayWorker:
    """The Ray actor of a worker: a thread embeds the chunks from `put`; `take` returns its reports."""

    def __init__(self, job: WorkerJob) -> None:
        self._tasks: queue.Queue[Any] = queue.Queue()
        self._reports: queue.Queue[Report] = queue.Queue()
        threading.Thread(target=self._run, args=(job,), daemon=True).start()

    def _run(self, job: WorkerJob) -> None:
        try:
            job.run(self._tasks, self._reports.put)
        except Exception as error:  # noqa: BLE001 - otherwise the reason would be lost
            self._reports.put(LayerwiseError(f"a worker failed: {type(error).__name__}: {error}"))

    def put(self, task: Chunk | Flush) -> None:
        """Enqueue a chunk."""
        self._tasks.put(task)

    def take(self) -> list[Report]:
        """Return the reports since the last call; none after a timeout."""
        try:
            reports = [self._reports.get(timeout=_WAIT_SECONDS)]
        except queue.Empty:
            return []
        time.sleep(_GATHER_SECONDS)
        while not self._reports.empty():
            reports.append(self._reports.get())
        return reports


@dataclass
class _Member:
    """This process's state of a worker. `embedded` rows are not yet in a written shard."""

    handle: Any
    reports: Any
    deaths: int = 0
    is_ready: bool = False
    is_flushed: bool = True
    embedded: int = 0
    pending: dict[int, Chunk] = field(default_factory=dict)


class _WorkerPool:
    """The workers of a run."""

    def __init__(self, ray: Any, share: Share, job: WorkerJob, work: Work) -> None:
        self._ray = ray
        self._work = work
        self._actor = ray.remote(RayWorker).options(
            num_cpus=share.cpus, num_gpus=share.gpus, max_concurrency=2, scheduling_strategy="SPREAD"
        )
        self._job = ray.put(job)
        self._deaths_at: Counter[int] = Counter()  # chunk number -> deaths of workers that had it
        self._uncounted = 0  # rows that are embedded again; progress includes them already
        self._members = [self._start() for _ in range(share.workers)]
        self._ready_at = time.monotonic()

    def run(self, todo: deque[Chunk], rest: Any) -> None:
        """Distribute the chunks of `todo`, which gets those of dead workers, and `rest`, until all are written."""
        while self._feed(todo, rest) or any(member.pending for member in self._members):
            self._take(todo)
            self._warn_when_waiting()

    def end(self) -> None:
        """Kill all workers."""
        for member in self._members:
            self._ray.kill(member.handle)

    def _start(self, deaths: int = 0) -> _Member:
        handle = self._actor.remote(self._job)
        return _Member(handle, handle.take.remote(), deaths)

    def _feed(self, todo: deque[Chunk], rest: Any) -> bool:
        """Send chunks to the workers that are ready; return whether there may be more chunks."""
        ready = [member for member in self._members if member.is_ready]
        while True:
            member = min(ready, key=lambda member: len(member.pending), default=None)
            if member is None or len(member.pending) >= _CHUNKS_PER_WORKER:
                return True
            chunk = todo.popleft() if todo else next(rest, None)
            if chunk is None:
                break
            member.pending[chunk.number] = chunk
            member.handle.put.remote(chunk)
            member.is_flushed = False
        for member in ready:
            if not member.is_flushed:
                member.handle.put.remote(Flush())
                member.is_flushed = True
        return False

    def _take(self, todo: deque[Chunk]) -> None:
        """Wait for reports and handle them."""
        waiting = {member.reports: member for member in self._members}
        done, _ = self._ray.wait(list(waiting), timeout=_WAIT_SECONDS)
        for ref in done:
            member = waiting[ref]
            try:
                reports: list[Report] = self._ray.get(ref)
            except self._ray.exceptions.RayTaskError as error:
                raise ModelError(f"a Ray worker failed: {_reason(error)}") from error
            except self._ray.exceptions.RayError as error:
                self._replace(member, error, todo)
                continue
            member.reports = member.handle.take.remote()
            for report in reports:
                self._handle(member, report)

    def _handle(self, member: _Member, report: Report) -> None:
        if isinstance(report, LayerwiseError):
            raise report
        if isinstance(report, Ready):
            member.is_ready = True
        elif isinstance(report, Embedded):
            member.embedded += report.rows
            self._progress(report.rows)
        else:
            chunk = member.pending.pop(report.number)
            member.embedded -= len(chunk.rows)
            member.deaths = 0
            self._work.on_tokens(report.tokens)
            self._work.written(chunk)

    def _progress(self, rows: int) -> None:
        recounted = min(rows, self._uncounted)
        self._uncounted -= recounted
        if rows > recounted:
            self._work.progress(rows - recounted)

    def _replace(self, member: _Member, error: Exception, todo: deque[Chunk]) -> None:
        """Replace a worker that has died; its chunks are distributed again unless their shards are written."""
        self._ray.kill(member.handle)  # an unreachable worker must not write any more
        self._uncounted += max(0, member.embedded)
        self._deaths_at.update(member.pending.keys())
        deaths = max(member.deaths + 1, *(self._deaths_at[number] for number in member.pending), 0)
        if deaths > _RETRIES:
            raise ModelError(
                f"a Ray worker died {deaths} times at the same work: {_reason(error)}; "
                f"run the same command again to resume, perhaps with fewer --processes or --tokens-per-batch"
            ) from error
        log.warning("A Ray worker died, another one is started: %s", _reason(error))
        self._members[self._members.index(member)] = self._start(member.deaths + 1)
        for chunk in member.pending.values():
            if self._work.folder.has(chunk):
                self._progress(len(chunk.rows))
                self._work.written(chunk)
            else:
                todo.append(chunk)

    def _warn_when_waiting(self) -> None:
        now = time.monotonic()
        if any(member.is_ready for member in self._members):
            self._ready_at = now
        elif now - self._ready_at > _PATIENCE_SECONDS:
            self._ready_at = math.inf
            log.warning("Waiting for the cluster to have room for a worker and for its model to load")


def _reason(error: Exception) -> str:
    """Return the last line of Ray's error: the exception in a worker, or how its process or machine ended."""
    line = ([line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__])[-1]
    if "worker process has died" in line:  # followed by several sentences about possible causes
        return "its process has ended (killed, or out of memory?)"
    return line if len(line) <= 200 else f"{line[:200]} …"
