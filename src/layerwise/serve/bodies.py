"""Reads and validates request bodies with a size limit; writes responses without a Python object per number."""

import asyncio
import base64
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from layerwise.encoder import Array
from layerwise.errors import printable
from layerwise.registry import did_you_mean
from layerwise.serve.api_errors import ApiError

R = TypeVar("R", bound=BaseModel)
_SHOWN = 80


async def read_body(request: HttpRequest, kind: type[R], *, max_bytes: int, seconds: float) -> R:
    """Parse a request's JSON body; raise as soon as it is too large, too slow or invalid."""
    content_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise ApiError(415, f"the body is {content_type[:_SHOWN]}; send JSON with Content-Type: application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise ApiError(
                        413, f"the body has more than {max_bytes} bytes; send fewer texts a request", code="too_large"
                    )
    except TimeoutError as error:
        raise ApiError(408, f"the body did not arrive within {seconds:g} seconds; send it again") from error
    try:
        return kind.model_validate_json(bytes(body))
    except ValidationError as error:
        raise _refusal(kind, error) from None


def json_response(value: Any, status: int = 200) -> Response:
    """Build a JSON response of plain values and float32 arrays, which orjson serialises directly."""
    return Response(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY), status, media_type="application/json")


def base64_text(vector: Array) -> str:
    """Encode a vector for OpenAI's clients: little-endian float32 as base64."""
    return base64.b64encode(vector.astype("<f4", copy=False).tobytes()).decode("ascii")


def _refusal(kind: type[BaseModel], error: ValidationError) -> ApiError:
    """Describe the first validation error in one line."""
    first, *others = error.errors(include_url=False, include_context=True)
    if first["type"] == "json_invalid":
        reason = str(first.get("ctx", {}).get("error", "invalid"))
        return ApiError(400, f"the body is not JSON: {printable(reason)[:200]}", code="invalid_json")
    if not first["loc"]:
        return ApiError(422, "the body must be a JSON object")
    field = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return ApiError(422, _unknown(kind, field), param=printable(field)[:_SHOWN])
    if first["type"] == "missing":
        unknown = next((str(other["loc"][0]) for other in others if other["type"] == "extra_forbidden"), None)
        remedy = "send it" if unknown is None else _unknown(kind, unknown)
        return ApiError(422, f"{field} is missing; {remedy}", param=field)
    if first["input"] == []:
        return ApiError(422, f"{field} is an empty list; send at least one", param=field)
    expected = getattr(kind, "expected", {}).get(field)
    message = f"{field} must be {expected}" if expected else f"{_place(first['loc'])}: {first['msg']}"
    return ApiError(422, message[:500], param=field)


def _unknown(kind: type[BaseModel], field: str) -> str:
    known = sorted(kind.model_fields)
    return (
        f"unknown field {printable(field)[:_SHOWN]!r}.{did_you_mean(field[:_SHOWN], known)} Known: {', '.join(known)}"
    )


def _place(loc: tuple[int | str, ...]) -> str:
    """Format a location in the body, without the type names that pydantic adds."""
    return ".".join(str(part) for part in loc if not isinstance(part, str) or part.isidentifier())
