"""What Prometheus reads of a server. No text and no key is in it."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import Response

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Counters of one application, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
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
        self._waiting = Gauge("layerwise_waiting_tokens", "Tokens in the queue", ["model"], registry=self.registry)
        self.in_flight = Gauge("layerwise_requests_in_flight", "Requests being answered", registry=self.registry)
        self.dropped = Counter("layerwise_dropped_requests", "Requests whose client left", registry=self.registry)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def of_model(self, name: str, waiting: Callable[[], int]) -> Callable[[int, int, int, float], None]:
        """Watch a model's queue; what is returned counts its batches."""
        self._waiting.labels(name).set_function(waiting)
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
        """All of them in Prometheus' text format."""
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)
