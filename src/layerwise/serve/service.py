"""What the routes share: the models with their batchers, and how a request waits for its embeddings."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest

from layerwise.encoder import Array, LayerEncoder, check_sentences
from layerwise.errors import LayerwiseError
from layerwise.registry import did_you_mean
from layerwise.serve.api_errors import ApiError, closing, overloaded
from layerwise.serve.batch_plan import Needs
from layerwise.serve.batcher import Batcher, QueueFull
from layerwise.serve.jobs import Job
from layerwise.serve.load import Served, ServedIndex
from layerwise.serve.metrics import Metrics
from layerwise.serve.served_model import Options, ServedModel, Texts
from layerwise.serve.settings import ServeSettings
from layerwise.threads import within_cores

log = logging.getLogger(__name__)
T = TypeVar("T")
_PROBE = "A probe."
_MOST_THREADS = 8  # beyond which they wait for Python's lock more than they work


class Service:
    """The state of an application.

    `in_flight` counts the requests that were accepted and are not answered; while `draining`, no more are accepted.
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
        self._tokenising = ThreadPoolExecutor(1, "tokenising")  # one: tokenizers written in Python are not thread-safe

    def start(self) -> None:
        """Start the threads."""
        for name, served in self.models.items():
            served.model.similarity_pairwise(torch.ones(1, 1), torch.ones(1, 1))  # imports take seconds
            graphs, cores = served.graphs(), self.settings.cores_of_worker
            workers = _threads(served.encoder, cores)
            for number, graph in enumerate(graphs):  # exported before the first request comes
                _load(served.encoder, graph, {cores, max(1, cores // workers)} if number == 0 else {cores})
            self._batchers[name] = Batcher(
                served.encoder,
                graphs=graphs,
                workers=workers,
                cores=cores,
                fill_seconds=self.settings.fill_ms / 1000,
                max_queue_tokens=self.settings.max_queue_tokens,
                max_seconds=self.settings.deadline / 3,
                on_batch=self.metrics.of_model(name, lambda name=name: self._batchers[name].waiting_tokens),  # type: ignore[misc]
            )

    def stop(self) -> None:
        """End the threads; what is still waiting gets 503."""
        self.draining = True
        for batcher in self._batchers.values():
            batcher.close()
        self._tokenising.shutdown(cancel_futures=True)

    def model(self, name: str | None) -> ServedModel:
        """A model by its name; the first where none is named."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            known = f"{did_you_mean(name, self.models)} Known: {', '.join(self.models)}"
            raise ApiError(404, f"there is no model {name[:80]!r}.{known}", param="model", code="model_not_found")
        return self.models[name]

    def index(self, name: str | None) -> ServedIndex:
        """An index by its name; where none is named, the only one."""
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
        """Embeddings (texts, width) by the batcher, and the number of tokens."""
        self._check_count(len(texts))
        batcher = self._batchers[served.name]
        future: Future[Array] = Future()
        try:
            async with asyncio.timeout(self.settings.deadline):
                batcher.check_room(len(texts))  # before any work is done
                job = await self.off_loop(lambda: self._submitted(served, texts, options, max_length, future))
                return await self._answer(request, job), job.tokens
        except QueueFull as full:
            raise overloaded(full.seconds) from None
        except TimeoutError:
            raise ApiError(
                504,
                f"not answered within {self.settings.deadline:g} seconds; send fewer texts, or send it again later",
                code="deadline",
            ) from None
        finally:
            future.cancel()  # of a request that ended before its answer: what it has in the queue is skipped

    def _submitted(
        self, served: ServedModel, texts: Texts, options: Options, max_length: int | None, future: Future[Array]
    ) -> Job:
        """Tokenise, and put the texts into the queue without another way over the event loop."""
        job = served.job(texts, options, max_length=max_length)
        job.future = future
        self._check_size(served, job, options)
        self._batchers[served.name].submit(job)
        return job

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Do some work in the thread that tokenises."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._tokenising, work)
        except LayerwiseError as error:
            raise ApiError(422, str(error)) from error
        except RuntimeError:
            if self.draining:
                raise closing() from None
            raise

    async def readiness(self) -> str:
        """Why the server cannot answer; empty where it can. A model that failed is tried again."""
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
        batcher.submit(job)
        try:
            job.future.result(timeout=self.settings.deadline)
        except Exception as error:  # noqa: BLE001 - whatever it is, the model does not work
            return f"{type(error).__name__} in a probe"
        return ""

    async def _answer(self, request: HttpRequest, job: Job) -> Array:
        """Wait for the embeddings; a client that has gone takes its texts out of the queue."""
        answer: asyncio.Future[Array] = asyncio.wrap_future(job.future)
        left: asyncio.Future[Any] = asyncio.ensure_future(
            request.receive()
        )  # all of the body is read: what comes is a disconnect
        left.add_done_callback(lambda _: answer.cancel())
        try:
            return await answer
        except asyncio.CancelledError:
            if not left.done():
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
            left.cancel()

    def _check_count(self, count: int) -> None:
        most = self.settings.max_inputs
        if count > most:
            raise ApiError(
                413, f"{count} texts; this server takes at most {most} a request: send several", param="input"
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
    """A thread for each core; a GPU has one."""
    return min(_MOST_THREADS, cores) if encoder.device.type == "cpu" else 1


def _load(encoder: LayerEncoder, graph: Needs, cores: Iterable[int]) -> None:
    """Make ONNX Runtime's graph, and load it for these numbers of cores."""
    tokens = torch.ones(1, 2, dtype=torch.int64)
    for count in cores:
        with within_cores(count):
            encoder.read(tokens, tokens, *graph)
