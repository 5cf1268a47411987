"""Errors in OpenAI's form: {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}."""

from typing import Any

import orjson
from starlette.responses import Response

_TYPES = {401: "authentication_error", 404: "not_found_error", 408: "timeout_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """An error response: its message says what was sent, what was expected and what to do."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers

    def response(self) -> Response:
        """Build the response."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        error: dict[str, Any] = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return Response(
            orjson.dumps({"error": error}), self.status, headers=self.headers, media_type="application/json"
        )


def overloaded(seconds: float) -> ApiError:
    """The error of a full queue."""
    wait = max(1, round(seconds))
    return ApiError(
        429,
        f"about {wait} s of work wait already; send the request again after the seconds of Retry-After",
        code="queue_full",
        headers={"Retry-After": str(wait)},
    )


def closing() -> ApiError:
    """The error of a server that is shutting down."""
    return ApiError(
        503,
        "the server is shutting down; send the request to another one, or again in a moment",
        code="shutting_down",
        headers={"Retry-After": "5"},
    )
