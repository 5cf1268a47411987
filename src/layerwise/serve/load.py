"""Loads the served models and indexes by name, and checks the server's limits against them."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from layerwise.encoder import is_default
from layerwise.errors import InputError, LayerwiseError
from layerwise.index import VectorIndex, model_of, open_index
from layerwise.model import LayerModel
from layerwise.predict import Predictor
from layerwise.serve.served_model import Options, ServedModel
from layerwise.serve.settings import ServeSettings

log = logging.getLogger(__name__)
_PROBE = (torch.ones(1, 2, dtype=torch.int64),) * 2  # tokens and mask


@dataclass(frozen=True)
class ServedIndex:
    """An index, the model of its vectors, and the options with which queries are embedded."""

    name: str
    index: VectorIndex
    served: ServedModel
    options: Options


@dataclass(frozen=True)
class Served:
    """All models and indexes of a server, by name."""

    models: dict[str, ServedModel]
    indexes: dict[str, ServedIndex]


def load_served(settings: ServeSettings) -> Served:
    """Load the models and indexes of the settings."""
    places: dict[str, str] = {}
    for place, name in map(_split_model, settings.models):
        if name in places:
            raise InputError(f"two models are called {name!r}; give one of them another name: {place}=NAME")
        places[name] = place
    opened: dict[str, tuple[str, VectorIndex]] = {}  # before the models, which take longer to load
    for name, path in map(split_index, settings.index):
        if name in opened:
            raise InputError(f"two indexes are called {name!r}; give one of them another name")
        opened[name] = path, open_index(path)
    models = {
        name: ServedModel(name, _load(place, settings), max_counted=settings.max_tokens)
        for name, place in places.items()
    }
    check_limits(settings, list(models.values()))
    served = list(models.values())
    return Served(models, {name: served_index(name, index, served, path) for name, (path, index) in opened.items()})


def check_limits(settings: ServeSettings, models: Sequence[ServedModel]) -> None:
    """Raise if a limit excludes texts that a model accepts."""
    for served in models:
        if settings.max_tokens < served.encoder.max_length:
            raise InputError(
                f"max_tokens {settings.max_tokens} is less than the {served.encoder.max_length} tokens that a text of "
                f"{served.name} may have; raise max_tokens, or give a lower max_length"
            )


def served_index(name: str, index: VectorIndex, models: Sequence[ServedModel], path: str) -> ServedIndex:
    """Pair an index with the model that made its vectors."""
    for served in models:
        model = model_of(index.settings, index.width, served.model)
        if model is not None:
            options = Options(
                layers=None if model is served.model else str(model.mix),
                prompt_name="query" if model.prompts["query"] else None,
                normalize=bool(index.settings.get("normalize")),
                dimensions=index.settings.get("truncate_dim"),
            )
            return ServedIndex(name, index, served, options)
    another = "by another model, or with another max_length,"
    made_by = another if "model" in index.settings else f"with {index.width} numbers a vector"
    raise InputError(
        f"{path}: its vectors were made {made_by} than any that is served ({', '.join(m.name for m in models)}); serve "
        f"that model too, or embed again"
    )


def split_index(text: str) -> tuple[str, str]:
    """Parse NAME=PATH."""
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise InputError(f"index {text!r}: expected NAME=PATH, such as papers=vectors")
    return name, path


def _split_model(text: str) -> tuple[str, str]:
    """Parse MODEL or MODEL=NAME; the default name is that of the folder or on the hub."""
    if Path(text).expanduser().exists() or "=" not in text:
        place, name = text, ""
    else:
        place, _, name = text.rpartition("=")
        if not (place and name):
            raise InputError(f"model {text!r}: expected MODEL or MODEL=NAME, such as default=mini")
        if Path(name).expanduser().is_dir() and not Path(place).expanduser().is_dir():
            raise InputError(f"model {text!r}: a model is MODEL=NAME; did you mean {name}={place}?")
    if name:
        return place, name
    folder = Path(place).expanduser()
    return place, folder.resolve().name if folder.exists() and not is_default(place) else place


def _load(place: str, settings: ServeSettings) -> LayerModel | Predictor:
    """Load a model, as a predictor if the folder has tasks.

    The default backend on a CPU is ONNX, which halves the time of a short text; torch if the model cannot be exported.
    """
    has_tasks = (Path(place).expanduser() / "tasks.json").is_file()
    load = Predictor.load if has_tasks else LayerModel.load
    loading = settings.loading
    if loading["backend"] is not None or loading["precision"] != "float" or not _runs_onnx(loading):
        return load(place, **loading)
    model = load(place, **loading | {"backend": "onnx", "device": "cpu"})
    encoder = (model.model if isinstance(model, Predictor) else model).encoder
    try:
        encoder.read(*_PROBE, [encoder.depth], ["mean"])
    except LayerwiseError as error:
        log.warning("%s runs with torch: %s", place, error)
        return load(place, **loading)
    return model


def _runs_onnx(loading: Mapping[str, Any]) -> bool:
    """Whether ONNX is installed and supports the options."""
    cpu = loading["device"] == "cpu" or (loading["device"] is None and not torch.cuda.is_available())
    return cpu and loading["dtype"] == "float32" and all(map(find_spec, ("onnx", "onnxruntime")))
