"""The application: routes, pages, and a middleware that counts requests, checks keys and returns errors as JSON."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Container, Mapping
from contextlib import asynccontextmanager
from importlib import resources

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from layerwise.errors import LayerwiseError, printable
from layerwise.model import LayerModel
from layerwise.predict import Predictor
from layerwise.serve.api_errors import ApiError, closing
from layerwise.serve.keys import Keys
from layerwise.serve.load import Served, check_limits
from layerwise.serve.routes import Endpoint, api_routes, post_endpoints
from layerwise.serve.served_model import ServedModel
from layerwise.serve.service import Service
from layerwise.serve.settings import ServeSettings
from layerwise.version import __version__

log = logging.getLogger(__name__)
OPEN = ("/livez", "/readyz")  # health checks: need no key and are answered while draining
_STATIC = {
    "/": "page.html",
    "/page.css": "page.css",
    "/page.js": "page.js",
    "/docs": "docs.html",
    "/docs.js": "docs.js",
}
_MEDIA = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def create_app(models: Served | Mapping[str, LayerModel | Predictor], settings: ServeSettings | None = None) -> FastAPI:
    """An ASGI application that serves models by their names.

    If it is mounted in another application, that one must run its lifespan: `app.router.lifespan_context(app)`.

    Args:
        models: Models by name, or what `load_served` gives.
        settings: Limits, keys and so on; host and port are for `run_server`.
    """
    settings = settings or ServeSettings()
    if not isinstance(models, Served):
        named = {name: ServedModel(name, model, max_counted=settings.max_tokens) for name, model in models.items()}
        models = Served(named, {})
    check_limits(settings, list(models.models.values()))
    service = Service(models, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.stop()

    app = FastAPI(
        title="layerwise",
        version=__version__,
        summary="Embeddings from any layers of a transformer",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's page loads scripts from a CDN
        redoc_url=None,
        exception_handlers={HTTPException: _http_error, ApiError: _api_error, LayerwiseError: _layerwise_error},
    )
    app.state.service = service
    routes = api_routes(service)
    app.include_router(routes)
    _add_pages(app)
    keys = None if settings.keys is None else Keys.read(settings.keys)
    paths = {str(getattr(route, "path", "")) for route in (*app.routes, *routes.routes)}
    app.add_middleware(_Guard, service=service, keys=keys, endpoints=post_endpoints(routes), paths=paths)
    if settings.cors:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.cors), allow_methods=["GET", "POST"], allow_headers=["*"]
        )
    return app


class _Guard:
    """Middleware for all routes: rejects requests while draining, checks keys, counts, and hides tracebacks.

    `endpoints`, by path, are called directly, as FastAPI's routing takes a third of a request's time. Metrics label the
    requests of `paths` by path and all others as "other".
    """

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        keys: Keys | None,
        endpoints: Mapping[str, Endpoint],
        paths: Container[str],
    ) -> None:
        self._app = app
        self._paths = paths
        self._service = service
        self._keys = keys
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self._service.draining:  # makes the client reconnect, to another server
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        service = self._service
        endpoint = self._endpoints.get(scope["path"]) if scope["method"] == "POST" else None
        service.in_flight += 1
        service.metrics.begin()
        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await refusal.response()(scope, receive, counted)
            elif endpoint is not None:
                response = await _answer(endpoint, Request(scope, receive))
                await response(scope, receive, counted)
            else:
                await self._app(scope, receive, counted)
        except ClientDisconnect:
            status = status or 499
        except asyncio.CancelledError:  # uvicorn's, when the time to drain has expired
            if not service.draining:
                raise
            if not status:
                await closing().response()(scope, receive, counted)
        except Exception as error:  # noqa: BLE001 - a traceback could contain request data
            log.error("A request failed: %s at %s", type(error).__name__, _place(error))
            if not status:
                await ApiError(500, "the server failed; report it").response()(scope, receive, counted)
        finally:
            service.in_flight -= 1
            path = str(getattr(scope.get("route"), "path", scope["path"]))
            path = path if path in self._paths else "other"
            service.metrics.end(path, status, time.perf_counter() - start)

    def _refusal(self, scope: Scope) -> ApiError | None:
        if scope["path"] in OPEN:
            return None
        headers = dict(scope["headers"])
        if self._keys is not None and not self._keys.allow(headers.get(b"authorization", b"").decode("latin-1")):
            return ApiError(
                401,
                "a key is missing or wrong; send it as Authorization: Bearer KEY",
                code="invalid_api_key",
                # Chromium asks for no password where a second challenge follows in this line
                headers={"WWW-Authenticate": 'Basic realm="layerwise, the key as password"'},
            )
        return closing() if self._service.draining else None


async def _answer(endpoint: Endpoint, request: Request) -> Response:
    try:
        return await endpoint(request)
    except ApiError as error:
        return await _api_error(request, error)
    except LayerwiseError as error:
        return await _layerwise_error(request, error)


def _place(error: BaseException) -> str:
    """Return the function and line that raised, without values of the request."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "nowhere" if trace is None else f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}"


async def _api_error(_: Request, error: ApiError) -> Response:
    return error.response()


async def _layerwise_error(_: Request, error: LayerwiseError) -> Response:
    return ApiError(422, str(error)).response()


async def _http_error(_: Request, error: HTTPException) -> Response:
    """Handle an unknown path or an unsupported method."""
    headers = None if error.headers is None else dict(error.headers)
    allowed = (headers or {}).get("Allow", "another method")
    messages = {404: "there is nothing here; see /docs for the addresses", 405: f"this address takes {allowed}"}
    message = messages.get(error.status_code, printable(str(error.detail))[:200])
    return ApiError(error.status_code, message, headers=headers).response()


def _add_pages(app: FastAPI) -> None:
    """Add the demo page and the API documentation."""
    pages = resources.files("layerwise.serve").joinpath("page")
    for path, name in _STATIC.items():
        content, media_type = pages.joinpath(name).read_bytes(), _MEDIA[name.rpartition(".")[2]]

        async def page(content: bytes = content, media_type: str = media_type) -> Response:
            return Response(content, media_type=media_type, headers=_PAGE_HEADERS)

        app.add_api_route(path, page, include_in_schema=False)


def service_of(app: FastAPI) -> Service:
    """Return the state of an application."""
    service: Service = app.state.service
    return service
