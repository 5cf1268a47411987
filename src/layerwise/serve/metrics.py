"""Prometheus metrics of a server. They contain no texts and no keys.

With several processes, PROMETHEUS_MULTIPROC_DIR names their shared folder, and each process reports the totals.
"""

import os
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.responses import Response

from layerwise.serve.worker import METRICS_FOLDER

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_SUMMED: dict[str, Any] = {"multiprocess_mode": "livesum"}  # over the running processes
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Counters of one application, in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._is_shared = METRICS_FOLDER in os.environ
        self._requests = Counter(
            "layerwise_requests", "Requests by path and status", ["path", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "layerwise_request_seconds", "Time to answer", ["path"], buckets=_SECONDS, registry=self.registry
        )
        self._texts = Counter("layerwise_texts", "Texts embedded", ["model"], registry=self.registry)
        self._tokens = Counter("layerwise_tokens", "Tokens embedded", ["model"], registry=self.registry)
        self._padded = Counter("layerwise_padded_tokens", "Tokens with padding", ["model"], registry=self.registry)
        self._batch_texts = Histogram(
            "layerwise_batch_texts", "Texts a batch", ["model"], buckets=_TEXTS, registry=self.registry
        )
        self._batch_seconds = Histogram(
            "layerwise_batch_seconds", "Time of a batch", ["model"], buckets=_SECONDS, registry=self.registry
        )
        self._waiting = Gauge(
            "layerwise_waiting_tokens", "Tokens in the queue", ["model"], registry=self.registry, **_SUMMED
        )
        self._in_flight = Gauge(
            "layerwise_requests_in_flight", "Requests being answered", registry=self.registry, **_SUMMED
        )
        self._queues: list[tuple[Gauge, Callable[[], int]]] = []
        self.dropped = Counter("layerwise_dropped_requests", "Requests whose client left", registry=self.registry)

    def begin(self) -> None:
        """Count a received request."""
        self._in_flight.inc()
        if self._is_shared:  # another process may report this one's
            self._read_queues()

    def end(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._in_flight.dec()
        if self._is_shared:
            self._read_queues()
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def of_model(self, name: str, waiting: Callable[[], int]) -> Callable[[int, int, int, float], None]:
        """Register a model's queue; return a callback that counts its batches."""
        self._queues.append((self._waiting.labels(name), waiting))
        texts, tokens, padded = (counter.labels(name) for counter in (self._texts, self._tokens, self._padded))
        batch_texts, batch_seconds = self._batch_texts.labels(name), self._batch_seconds.labels(name)

        def count(rows: int, size: int, padded_size: int, seconds: float) -> None:
            texts.inc(rows)
            tokens.inc(size)
            padded.inc(padded_size)
            batch_texts.observe(rows)
            batch_seconds.observe(seconds)

        return count

    def response(self) -> Response:
        """Return all metrics in Prometheus' text format."""
        self._read_queues()
        registry = self.registry
        if self._is_shared:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    def _read_queues(self) -> None:
        for gauge, waiting in self._queues:
            gauge.set(waiting())
