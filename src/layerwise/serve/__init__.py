"""Embeddings over HTTP: OpenAI's API with any layers per request; similarity, predictions, search; a demo page.

`create_app(models)` is an ASGI application; `run_server` serves it until SIGTERM, `run_workers` by several processes.
Requests share passes through the model (`batcher.py`).
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.serve.app import create_app
    from layerwise.serve.batcher import Batcher
    from layerwise.serve.jobs import Job, TextPass
    from layerwise.serve.load import load_served
    from layerwise.serve.served_model import ServedModel
    from layerwise.serve.server import run_server
    from layerwise.serve.settings import ServeSettings, read_serve_settings
    from layerwise.serve.supervisor import run_workers

__getattr__, __dir__, __all__ = door(__name__, __file__)
