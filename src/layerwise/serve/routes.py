"""The API routes."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import torch
from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from layerwise.encoder import MASK, POOLINGS, Array, prompt_library
from layerwise.files import plain_json
from layerwise.predict import Predictions, Predictor
from layerwise.serve.api_errors import ApiError
from layerwise.serve.bodies import base64_text, json_response, read_body
from layerwise.serve.load import ServedIndex
from layerwise.serve.schemas import (
    EmbeddingsRequest,
    EmbeddingsResponse,
    ErrorResponse,
    LayersResponse,
    ModelsResponse,
    PredictRequest,
    PredictResponse,
    SearchRequest,
    SearchResponse,
    SimilarityRequest,
    SimilarityResponse,
    Status,
)
from layerwise.serve.served_model import Options, ServedModel, texts_of
from layerwise.serve.service import Service
from layerwise.texts import unique_texts

Endpoint = Callable[[Request], Awaitable[Response]]
_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorResponse, "description": "Refused, with the remedy"},
    "5XX": {"model": ErrorResponse, "description": "Shutting down, or not answered in time"},
}


def _post_schema(kind: type[BaseModel], response: type[BaseModel]) -> dict[str, Any]:
    """OpenAPI options of a route that parses its body itself."""
    schema = kind.model_json_schema()
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {"openapi_extra": {"requestBody": body}, "responses": {200: {"model": response}, **_ERRORS}}


def _get_schema(model: type[BaseModel]) -> dict[str, Any]:
    return {"responses": {200: {"model": model}, **_ERRORS}}


def api_routes(service: Service) -> APIRouter:
    """Create all routes below /v1, health checks and metrics."""
    router = APIRouter(default_response_class=Response)
    limits = {"max_bytes": service.settings.max_body_bytes, "seconds": service.settings.deadline}

    @router.post("/v1/embeddings", **_post_schema(EmbeddingsRequest, EmbeddingsResponse))
    async def embeddings(request: Request) -> Response:
        """Embed texts, by the model's default layers or any others."""
        body = await read_body(request, EmbeddingsRequest, **limits)  # type: ignore[arg-type]
        served, texts = service.model(body.model), texts_of(body.input)
        options = _options(body, normalize=body.normalize, dimensions=body.dimensions)
        embedded, tokens = await service.embed(request, served, texts, options)
        vectors = served.vectors(embedded, options)
        write: Callable[[Array], Any] = base64_text if body.encoding_format == "base64" else lambda vector: vector
        data = [
            {"object": "embedding", "index": index, "embedding": write(vector)}
            | ({"layer": layer} if options.every_layer else {})
            for index, layers in enumerate(vectors)
            for layer, vector in enumerate(layers)
        ]
        return _list(data, served, tokens)

    @router.post("/v1/similarity", **_post_schema(SimilarityRequest, SimilarityResponse))
    async def similarity(request: Request) -> Response:
        """Compare the texts of pairs, by a mix or in every layer."""
        body = await read_body(request, SimilarityRequest, **limits)  # type: ignore[arg-type]
        served, options = service.model(body.model), _options(body)
        texts, (left, right) = unique_texts(*zip(*body.pairs, strict=True))
        embedded, tokens = await service.embed(request, served, texts_of(texts), options)
        vectors = served.vectors(embedded, options)
        scores = _similarities(served, vectors[left], vectors[right])
        data = [
            {"object": "similarity", "index": index}
            | ({"layers": row} if options.every_layer else {"similarity": row[0]})
            for index, row in enumerate(scores)
        ]
        return _list(data, served, tokens, similarity=served.model.similarity_fn_name)

    @router.post("/v1/predict", **_post_schema(PredictRequest, PredictResponse))
    async def predict(request: Request) -> Response:
        """Predict a task of the model: a class with its probability, or a number."""
        body = await read_body(request, PredictRequest, **limits)  # type: ignore[arg-type]
        served = service.model(body.model)
        return await _predicted(service, request, served, _predictor(served), body)

    @router.post("/v1/search", **_post_schema(SearchRequest, SearchResponse))
    async def search(request: Request) -> Response:
        """The rows of an index that are nearest to a text."""
        body = await read_body(request, SearchRequest, **limits)  # type: ignore[arg-type]
        return await _searched(service, request, service.index(body.index), body)

    @router.get("/v1/models", **_get_schema(ModelsResponse))
    async def models() -> Response:
        """The models that are served."""
        data = [_model_facts(served, service.started) for served in service.models.values()]
        return json_response({"object": "list", "data": data, "indexes": list(service.indexes)})

    @router.get("/v1/layers", **_get_schema(LayersResponse))
    async def layers(model: str | None = None) -> Response:
        """What `layers` and `pooling` may say for a model."""
        served = service.model(model)
        return json_response(
            {
                "model": served.name,
                "layers": list(range(served.encoder.depth + 1)),
                "width": served.encoder.width,
                "mix": str(served.model.mix),
                "poolings": [name for name in POOLINGS if name != MASK],
                "prompt_templates": list(prompt_library()),
            }
        )

    @router.get("/livez", **_get_schema(Status))
    async def livez() -> Response:
        """Whether the process answers."""
        return json_response({"status": "alive"})

    @router.get("/readyz", **_get_schema(Status))
    async def readyz() -> Response:
        """Whether texts can be embedded now."""
        reason = await service.readiness()
        if reason:
            return json_response({"status": "not ready", "reason": reason}, 503)
        return json_response({"status": "ready"})

    @router.get("/metrics", responses={200: {"content": {"text/plain": {}}}, **_ERRORS})
    async def metrics() -> Response:
        """Counters in Prometheus' format."""
        return service.metrics.response()

    return router


def post_endpoints(router: APIRouter) -> dict[str, Endpoint]:
    """Return the endpoints of POST routes by path; they take only the request."""
    routes = (route for route in router.routes if isinstance(route, APIRoute))
    return {route.path: route.endpoint for route in routes if "POST" in (route.methods or ())}


def _options(body: Any, **extra: Any) -> Options:
    return Options(
        layers=body.layers, pooling=body.pooling, prompt_name=body.prompt_name, truncate=body.truncate, **extra
    )


def _list(data: list[dict[str, Any]], served: ServedModel, tokens: int, **extra: Any) -> Response:
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json_response({"object": "list", "data": data, "model": served.name, **extra, "usage": usage})


def _similarities(served: ServedModel, left: Array, right: Array) -> Array:
    """Compute the model's similarity: (pairs, vectors, width) twice -> (pairs, vectors)"""
    flat = (torch.from_numpy(side.reshape(-1, side.shape[-1])) for side in (left, right))
    scores: Array = served.model.similarity_pairwise(*flat).numpy().reshape(left.shape[:2])
    return scores


def _predictor(served: ServedModel) -> Predictor:
    if served.predictor is None:
        message = f"{served.name} has no tasks; serve a model that `layerwise multitask` wrote"
        raise ApiError(422, message, param="model")
    return served.predictor


def _task(predictor: Predictor, name: str | None) -> str:
    known = list(predictor.heads)
    if name is None and len(known) == 1:
        return known[0]
    if name not in known:
        raise ApiError(422, f"name one of the model's tasks: {', '.join(known)}", param="task")
    return name


async def _predicted(
    service: Service, request: Request, served: ServedModel, predictor: Predictor, body: PredictRequest
) -> Response:
    task = _task(predictor, body.task)
    setup = predictor.setup(task)
    if setup.task.is_pair == isinstance(body.input[0], str):
        expected = "pairs of texts" if setup.task.is_pair else "a list of texts"
        raise ApiError(422, f"task {task!r} takes {expected}", param="input")
    texts, rows = unique_texts(*(zip(*body.input, strict=True) if setup.task.is_pair else [body.input]))
    options = Options(truncate=body.truncate)
    length = setup.objective.max_length
    embedded, tokens = await service.embed(request, served, texts_of(texts), options, max_length=length)
    outputs = await service.off_loop(lambda: predictor.head_outputs(task, [embedded[row] for row in rows]))
    return _list(_prediction_items(predictor.predictions(task, outputs)), served, tokens, task=task)


def _prediction_items(predicted: Predictions) -> list[dict[str, Any]]:
    if not predicted.labels:
        return [
            {"object": "prediction", "index": index, "number": number}
            for index, number in enumerate(predicted.numbers.tolist())
        ]
    return [
        {
            "object": "prediction",
            "index": index,
            "label": label,
            "probabilities": dict(zip(predicted.classes, shares, strict=True)),
        }
        for index, (label, shares) in enumerate(zip(predicted.labels, predicted.probabilities.tolist(), strict=True))
    ]


async def _searched(service: Service, request: Request, searched: ServedIndex, body: SearchRequest) -> Response:
    served, options = searched.served, replace(searched.options, truncate=body.truncate)
    embedded, tokens = await service.embed(request, served, texts_of(body.input), options)
    queries = served.vectors(embedded, options)[:, 0]
    hits = await service.off_loop(lambda: searched.index.search(queries, body.top_k))
    data = [
        {
            "object": "search_result",
            "index": index,
            "hits": [
                {"row": row, "score": score, "columns": plain_json(searched.index.columns(row))}
                for row, score in zip(rows, scores, strict=True)
            ],
        }
        for index, (rows, scores) in enumerate(zip(hits.rows.tolist(), hits.scores.tolist(), strict=True))
    ]
    return _list(data, served, tokens, index=searched.name)


def _model_facts(served: ServedModel, created: int) -> dict[str, Any]:
    return {
        "id": served.name,
        "object": "model",
        "created": created,
        "owned_by": "layerwise",
        "layers": served.encoder.depth,
        "width": served.model.width,
        "max_tokens": served.encoder.max_length,
        "mix": str(served.model.mix),
        "prompts": sorted(name for name, text in served.model.prompts.items() if text),
        "tasks": list(served.predictor.heads) if served.predictor else [],
    }
