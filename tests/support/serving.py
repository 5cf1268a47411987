"""A server in a thread of this process, on a free port."""

import base64
import threading
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import numpy as np
import uvicorn

from layerwise.serve import ServeSettings, create_app


@dataclass
class Running:
    url: str
    app: object
    client: httpx.Client

    @property
    def service(self):
        return self.app.state.service

    def post(self, path, **body):
        return self.client.post(path, json=body)

    def embed(self, **body):
        """The vectors of a request that must succeed."""
        answer = self.post("/v1/embeddings", **body)
        assert answer.status_code == 200, answer.text
        return vectors_of(answer.json())


def vectors_of(answer):
    return np.array([numbers(item["embedding"]) for item in answer["data"]], dtype=np.float32)


def numbers(embedding):
    return np.frombuffer(base64.b64decode(embedding), "<f4") if isinstance(embedding, str) else embedding


@contextmanager
def running(models, headers=None, **settings):
    """Serve models until the end of the block."""
    app = create_app(models, ServeSettings(**{"port": 0} | settings))
    config = uvicorn.Config(app, port=0, log_config=None, lifespan="on", http="h11")
    server = uvicorn.Server(config)
    server.capture_signals = _no_signals
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the server did not start")
            thread.join(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, headers=headers) as client:
            yield Running(f"http://127.0.0.1:{port}", app, client)
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def _no_signals():
    yield
