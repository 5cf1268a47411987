"""Restricts the accepted Host headers, as a protection against DNS rebinding."""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from layerwise.serve.api_errors import ApiError


class HostGuard:
    """Middleware that accepts requests to IP addresses, localhost and given names, and rejects others with 421."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self._names = {"localhost", *(name.lower() for name in names)}
        self._knows = lru_cache(maxsize=64)(self._is_known)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or reject it."""
        if scope["type"] == "http" and not self._knows(dict(scope["headers"]).get(b"host", b"").decode("latin-1")):
            message = "the server does not answer to this name; start it with --allow-host NAME, or use its address"
            await ApiError(421, message).response()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_known(self, host: str) -> bool:
        """Whether a Host, with or without port, is an IP address or an accepted name."""
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        try:
            ip_address(name)
        except ValueError:
            return not host or name.lower().rstrip(".") in self._names
        return True
