"""Limits what one connection may take: the time and size of its headers, and the requests that wait."""

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_SECONDS = 10.0
HEADER_BYTES = 65_536
MOST_PIPELINED = 16  # requests of a connection that wait for the answer to an earlier one
_UPGRADE = re.compile(rb"(?i)\r\nupgrade:")


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits.

    It closes a connection whose headers take longer than `HEADER_SECONDS`. It answers 400 to headers, or any other part
    of a request except the body, of more than `HEADER_BYTES`, and when more than `MOST_PIPELINED` requests wait. Offers
    of another protocol are ignored, as HTTP demands: Java's client makes one with its first request, and httptools
    would drop that request's body.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._pending_bytes = 0  # received since the last part of a request was complete
        self._in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the first request."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Handle headers, whole or in part, or a body, whose timeout the routes handle."""
        self._pending_bytes += len(data)
        if not self._in_body:
            headers, end, rest = data.partition(b"\r\n\r\n")
            data = _UPGRADE.sub(b"\r\nignored:", headers) + end + rest
        super().data_received(data)
        if self._pending_bytes > HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response("A part of the request is too large.")
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def on_headers_complete(self) -> None:
        """Check the headers; httptools answers 400 to an error that is raised here."""
        if self._pending_bytes > HEADER_BYTES:  # perhaps with the body
            size = len(self.url) + sum(len(name) + len(value) + len(": \r\n") for name, value in self.headers)
            if size > HEADER_BYTES:
                raise ValueError(size)
        if self.parser.get_http_version() == "1.1" and all(name != b"host" for name, _ in self.headers):
            raise ValueError("no host")
        if len(self.pipeline) >= MOST_PIPELINED:
            raise ValueError("too many requests")
        self._pending_bytes, self._in_body = 0, True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body on; the routes limit its size."""
        self._pending_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Expect headers again."""
        self._pending_bytes, self._in_body = 0, False
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Stop the timer: uvicorn's keep-alive timer covers the next request, `data_received` a pipelined one."""
        super().on_response_complete()
        self._stop_timer()

    def _unsupported_upgrade_warning(self) -> None:
        """Answer 400 to an offer that was not recognised, as it came in parts: the request has lost its body."""
        self.send_400_response("The header Upgrade is not supported.")

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
