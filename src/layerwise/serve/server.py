"""Serves until SIGTERM, then answers the requests in flight, rejects others with 503, and exits within a time limit."""

import gc
import logging
import socket
import sys
import time
from collections.abc import Callable, Iterable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from layerwise.serve.app import service_of
from layerwise.serve.connection_limits import LimitedProtocol
from layerwise.serve.hosts import HostGuard
from layerwise.serve.kernels import choose_kernels
from layerwise.serve.listening import BACKLOG, address_of, bound_socket, not_possible
from layerwise.serve.settings import ServeSettings, is_local

log = logging.getLogger(__name__)
_SWITCH_SECONDS = 0.0005  # Python's default of 5 ms delays batches, which acquire the GIL between operations
_QUIET_TICKS = 3


class _Server(uvicorn.Server):
    """uvicorn's server, but it keeps listening while it drains and exits with code 0."""

    def __init__(
        self, config: uvicorn.Config, app: FastAPI, settings: ServeSettings, on_ready: Callable[[], object]
    ) -> None:
        super().__init__(config)
        self._service = service_of(app)
        self._settings = settings
        self._on_ready = on_ready
        self._end = 0.0
        self._quiet = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections and call `on_ready`."""
        self._listen(sockets or ())  # first, as uvloop would hide that another process has started to listen there
        await super().startup(sockets)
        self._listen(sockets or ())  # again: asyncio sets the backlog to the number of connections it accepts at once
        self._on_ready()

    def _listen(self, sockets: Iterable[socket.socket]) -> None:
        try:
            for listening in sockets:
                listening.listen(BACKLOG)
        except OSError as error:
            raise not_possible(self._settings, error) from error

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the host's signature
        """Drain on the first signal, exit on the second; in one of several workers, the parent decides when to exit.

        Such a worker may get each signal twice: from its parent, and from a manager that signals the process group.
        """
        if self._service.draining:
            self.should_exit |= self._settings.workers == 1
            return
        self._service.draining = True
        self._end = time.monotonic() + self._settings.drain
        log.info("Shutting down: %d requests in flight", self._service.in_flight)

    async def on_tick(self, counter: int) -> bool:
        """Return whether to exit, ten times a second. Requests sent before the signal may not be read at first."""
        if self._service.draining:
            self._quiet = 0 if self._service.in_flight else self._quiet + 1
            self.should_exit |= self._quiet > _QUIET_TICKS or time.monotonic() > self._end
        return await super().on_tick(counter)


def run_server(
    app: FastAPI,
    settings: ServeSettings,
    *,
    bound: socket.socket | None = None,
    on_start: Callable[[str], object] | None = None,
) -> None:
    """Serve until a signal; `on_start` is called with the address when connections are accepted.

    `bound` is the socket where it was bound before the models were loaded.
    """
    listening = bound_socket(settings) if bound is None else bound
    serve_on(listening, app, settings, on_ready=lambda: on_start and on_start(address_of(listening)))


def serve_on(
    listening: socket.socket, app: FastAPI, settings: ServeSettings, *, on_ready: Callable[[], object]
) -> None:
    """Serve a socket until a signal; `on_ready` is called when connections are accepted."""
    choose_kernels(next(iter(service_of(app).models.values())).encoder)
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # or each full collection would traverse torch and the model for 0.2 s
    _Server(server_config(app, settings), app, settings, on_ready).run(sockets=[listening])


def server_config(app: FastAPI, settings: ServeSettings) -> uvicorn.Config:
    """Configure uvicorn: limits of headers, connections and times, and accepted host names."""
    guarded = HostGuard(app, settings.allow_host) if settings.keys is None and is_local(settings.host) else app
    return uvicorn.Config(
        guarded,
        http=LimitedProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=settings.max_connections,
        backlog=BACKLOG if settings.workers == 1 else 1,  # or an idle worker would accept all waiting connections
        timeout_graceful_shutdown=max(1, round(settings.drain)),
    )
