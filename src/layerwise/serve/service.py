"""The state shared by the routes: models and their batchers, and how a request waits for its embeddings."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import torch
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest

from layerwise.encoder import Array, LayerEncoder, check_sentences
from layerwise.errors import LayerwiseError
from layerwise.registry import did_you_mean
from layerwise.serve.api_errors import ApiError, closing, overloaded
from layerwise.serve.batch_plan import Covering, as_needed
from layerwise.serve.batcher import Batcher, QueueFull
from layerwise.serve.graphs import ServedGraphs
from layerwise.serve.jobs import Job
from layerwise.serve.load import Served, ServedIndex
from layerwise.serve.metrics import Metrics
from layerwise.serve.served_model import Options, ServedModel, Texts
from layerwise.serve.settings import ServeSettings

log = logging.getLogger(__name__)
T = TypeVar("T")
_PROBE = "A probe."
_MOST_THREADS = 8  # more threads mostly wait for the GIL
_FEW = 16  # texts that a batch's thread tokenises when it is idle, which saves a change of thread
_WATCH_AFTER = 0.02  # seconds; watching for a disconnect costs more than it saves for shorter requests


class Service:
    """The state of an application.

    `in_flight` counts the accepted requests without an answer; while `draining`, no more are accepted.
    """

    def __init__(self, served: Served, settings: ServeSettings) -> None:
        self.models = served.models
        self.indexes = served.indexes
        self.settings = settings
        self.metrics = Metrics()
        self.started = int(time.time())
        self.in_flight = 0
        self.draining = False
        self._batchers: dict[str, Batcher] = {}
        self._graphs: list[ServedGraphs] = []
        self._tokenising = ThreadPoolExecutor(1, "tokenising")  # one: tokenizers written in Python are not thread-safe

    def start(self) -> None:
        """Start the threads."""
        for name, served in self.models.items():
            served.model.similarity_pairwise(torch.ones(1, 1), torch.ones(1, 1))  # imports take seconds
            cores = self.settings.cores_of_worker
            workers = _threads(served.encoder, cores)
            covering: Covering = as_needed
            if served.encoder.backend == "onnx":
                self._graphs.append(ServedGraphs(served, cores=cores, batch_cores=max(1, cores // workers)))
                covering = self._graphs[-1].covering
            self._batchers[name] = Batcher(
                served.encoder,
                covering=covering,
                workers=workers,
                cores=cores,
                fill_seconds=self.settings.fill_ms / 1000,
                max_queue_tokens=self.settings.max_queue_tokens,
                max_seconds=self.settings.deadline / 3,
                on_batch=self.metrics.of_model(name, lambda name=name: self._batchers[name].waiting_tokens),  # type: ignore[misc]
            )

    def stop(self) -> None:
        """Stop the threads; waiting requests get 503."""
        self.draining = True
        for batcher in self._batchers.values():
            batcher.close()
        for graphs in self._graphs:
            graphs.close()
        self._tokenising.shutdown(cancel_futures=True)

    def model(self, name: str | None) -> ServedModel:
        """Return a model by name; by default the first."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            known = f"{did_you_mean(name, self.models)} Known: {', '.join(self.models)}"
            raise ApiError(404, f"there is no model {name[:80]!r}.{known}", param="model", code="model_not_found")
        return self.models[name]

    def index(self, name: str | None) -> ServedIndex:
        """Return an index by name; the name may be omitted if there is only one."""
        if not self.indexes:
            raise ApiError(404, "this server has no index; start it with --index NAME=PATH", param="index")
        if name is None and len(self.indexes) == 1:
            return next(iter(self.indexes.values()))
        if name not in self.indexes:
            what = "there are several indexes" if name is None else f"there is no index {name[:80]!r}"
            raise ApiError(404, f"{what}; name one of them: {', '.join(self.indexes)}", param="index")
        return self.indexes[name]

    async def embed(
        self,
        request: HttpRequest,
        served: ServedModel,
        texts: Texts,
        options: Options,
        *,
        max_length: int | None = None,
    ) -> tuple[Array, int]:
        """Return embeddings (texts, width) from the batcher, and the number of tokens."""
        self._check_count(len(texts))
        batcher = self._batchers[served.name]
        future: Future[Array] = Future()
        try:
            async with asyncio.timeout(self.settings.deadline):
                batcher.check_room(len(texts))  # before tokenisation
                jobs: list[Job] = []
                submit = partial(self._submit, jobs, served, texts, options, max_length, future)
                if not (len(texts) <= _FEW and served.tokenises_in_threads and batcher.offer(submit)):
                    self._tokenise(submit)
                embeddings = await self._answer(request, future)
                return embeddings, jobs[0].tokens
        except QueueFull as full:
            raise overloaded(full.seconds) from None
        except TimeoutError:
            raise ApiError(
                504,
                f"not answered within {self.settings.deadline:g} seconds; send fewer texts, or send it again later",
                code="deadline",
            ) from None
        finally:
            future.cancel()  # if the request ended early, its texts in the queue are skipped

    def _submit(
        self,
        jobs: list[Job],
        served: ServedModel,
        texts: Texts,
        options: Options,
        max_length: int | None,
        future: Future[Array],
    ) -> None:
        """Tokenise and enqueue the texts as a job, which is added to `jobs`; errors are set on the future.

        The event loop wakes up only once, for the embeddings: every change of thread takes longer than tokenisation.
        """
        try:
            job = served.job(texts, options, max_length=max_length)
            job.future = future
            self._check_size(served, job, options)
            jobs.append(job)
            self._batchers[served.name].submit(job)
        except BaseException as error:  # noqa: BLE001 - a panic of a Rust tokenizer is no Exception
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Run a function in the tokenisation thread."""
        try:
            return await asyncio.wrap_future(self._tokenise(work))
        except LayerwiseError as error:
            raise ApiError(422, str(error)) from error

    def _tokenise(self, work: Callable[..., T], *args: Any) -> "Future[T]":
        """Submit a function to the tokenisation thread."""
        try:
            return self._tokenising.submit(work, *args)
        except RuntimeError:
            if self.draining:
                raise closing() from None
            raise

    async def readiness(self) -> str:
        """Return why the server is not ready, or an empty string. A model that failed is tried again."""
        return await asyncio.to_thread(self._readiness)

    def _readiness(self) -> str:
        if self.draining:
            return "shutting down"
        for name, batcher in self._batchers.items():
            if batcher.failure and (failure := self._probe_failure(self.models[name], batcher)):
                return f"{name}: {failure}"
        return "" if self._batchers else "starting"

    def _probe_failure(self, served: ServedModel, batcher: Batcher) -> str:
        job = served.job(check_sentences([_PROBE]), Options(truncate=True))
        try:
            batcher.submit(job)
            job.future.result(timeout=self.settings.deadline)
        except QueueFull:
            return "a batch failed and the queue is full"
        except Exception as error:  # noqa: BLE001 - any error means that the model does not work
            return f"{type(error).__name__} in a probe"
        return ""

    async def _answer(self, request: HttpRequest, future: Future[Array]) -> Array:
        """Wait for the embeddings; if the client disconnects, its texts are removed from the queue."""
        answer: asyncio.Future[Array] = asyncio.wrap_future(future)
        disconnects: list[asyncio.Future[Any]] = []

        def watch() -> None:  # the body has been read completely, so only a disconnect can be received
            disconnects.append(asyncio.ensure_future(request.receive()))
            disconnects[0].add_done_callback(lambda _: answer.cancel())

        timer = asyncio.get_running_loop().call_later(_WATCH_AFTER, watch)
        try:
            return await answer
        except asyncio.CancelledError:
            if not any(disconnect.done() for disconnect in disconnects):
                raise
            self.metrics.dropped.inc()
            raise ClientDisconnect from None
        except LayerwiseError as error:
            raise ApiError(422, str(error)) from error
        except RuntimeError as error:
            if self.draining:
                raise closing() from None
            raise ApiError(500, "the model failed; send the request again", code="model_failed") from error
        finally:
            timer.cancel()
            for disconnect in disconnects:
                disconnect.cancel()

    def _check_count(self, count: int) -> None:
        limit = self.settings.max_inputs
        if count > limit:
            raise ApiError(
                413, f"{count} texts; this server takes at most {limit} a request: send several", param="input"
            )

    def _check_size(self, served: ServedModel, job: Job, options: Options) -> None:
        if job.tokens > self.settings.max_tokens:
            raise ApiError(
                413,
                f"{job.tokens} tokens; this server takes at most {self.settings.max_tokens} a request: send several",
                param="input",
                code="too_many_tokens",
            )
        width = job.width if options.dimensions is None or options.every_layer else options.dimensions
        numbers = len(job.passes[0].tokens) * max(width, served.layer_width)
        if numbers > self.settings.max_numbers:
            raise ApiError(
                413,
                f"the answer would have {numbers} numbers; this server gives at most {self.settings.max_numbers}: send "
                f"fewer texts, or ask for fewer layers",
                param="layers",
            )


def _threads(encoder: LayerEncoder, cores: int) -> int:
    """Return the number of threads: one per core on a CPU, otherwise one."""
    return min(_MOST_THREADS, cores) if encoder.device.type == "cpu" else 1
