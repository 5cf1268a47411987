"""Serving until SIGTERM: then what is in flight is answered, the rest gets 503, and the process ends in time."""

import gc
import logging
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from layerwise.serve.app import service_of
from layerwise.serve.hosts import HostGuard
from layerwise.serve.kernels import choose_kernels
from layerwise.serve.listening import BACKLOG, address_of, bound_socket, not_possible
from layerwise.serve.settings import ServeSettings, is_local
from layerwise.serve.slow_clients import PatientProtocol

log = logging.getLogger(__name__)
_SWITCH_SECONDS = 0.0005  # Python's 5 ms are long for batches that take the lock between two operations
_HEADER_BYTES = 65_536
_QUIET_TICKS = 3


class _Server(uvicorn.Server):
    """uvicorn's server that keeps listening while it drains, and ends with exit code 0."""

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
        """Accept connections, and say so."""
        try:
            await super().startup(sockets)
            for listening in sockets or ():
                listening.listen(BACKLOG)  # asyncio makes it as long as the connections that it accepts at once
        except OSError as error:  # somebody else has listened there since it was bound
            raise not_possible(self._settings, error) from error
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the host's signature
        """A first signal begins to drain, a second one ends it; one of several workers leaves that to its parent.

        Such a worker may get each signal twice: from its parent, and from what signals all processes of a service.
        """
        if self._service.draining:
            self.should_exit |= self._settings.workers == 1
            return
        self._service.draining = True
        self._end = time.monotonic() + self._settings.drain
        log.info("Shutting down: %d requests in flight", self._service.in_flight)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether it is time to end. What came before the signal may be unread at first."""
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
    gc.freeze()  # a full collection would look through all of torch and the model for 0.2 s, again and again
    _Server(server_config(app, settings), app, settings, on_ready).run(sockets=[listening])


def server_config(app: FastAPI, settings: ServeSettings) -> uvicorn.Config:
    """How uvicorn serves an application: bounded headers, connections and times, names that are ours."""
    guarded = HostGuard(app, settings.allow_host) if settings.keys is None and is_local(settings.host) else app
    return uvicorn.Config(
        guarded,
        http=PatientProtocol,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=settings.max_connections,
        backlog=BACKLOG if settings.workers == 1 else 1,  # or a worker that is free takes all that wait
        timeout_graceful_shutdown=max(1, round(settings.drain)),
    )
