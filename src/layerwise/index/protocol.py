"""The protocol of indexes, and the model that made their vectors."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from layerwise.embed import RECORDED_OPTIONS, is_local
from layerwise.encoder import Array
from layerwise.errors import InputError, MixError
from layerwise.model import LayerModel

SIMILARITIES = ("cosine", "dot")


@dataclass(frozen=True)
class Hits:
    """The nearest rows of n queries, best first: row numbers and scores, (n, k) each."""

    rows: NDArray[np.int64]
    scores: Array


class VectorIndex(Protocol):
    """A searchable index of vectors with carried columns."""

    @property
    def width(self) -> int:
        """The length of a vector."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """How the vectors were made: the manifest of `layerwise embed`; empty if unknown."""

    def __len__(self) -> int:
        """The number of vectors."""

    def search(self, queries: Array, k: int) -> Hits:
        """Return the k nearest vectors of each query (n, width), or all if there are fewer."""

    def columns(self, row: int) -> dict[str, Any]:
        """Return the carried columns of a vector."""


def model_of(settings: Mapping[str, Any], width: int, model: LayerModel) -> LayerModel | None:
    """Return the model, or its encoder with the recorded mix, if it made the vectors; otherwise None.

    The backend may differ. Without a manifest only the width is compared.
    """
    if "model" not in settings:
        return model if model.width == width else None
    candidates = [model]
    with suppress(MixError):  # the mix has layers that this model lacks
        candidates.append(model.with_mix(str(settings.get("mix", "last"))))
    digest = settings["model"]
    return next((candidate for candidate in candidates if candidate.digest(settings.get("backend")) == digest), None)


def load_model_of(
    place: str, settings: Mapping[str, Any], width: int, *, name: str | None = None, **options: Any
) -> LayerModel:
    """Load the recorded model of vectors, or `name`, which must be the same model.

    Options are those of `LayerModel.load`; None means the recorded value.
    """
    recorded = settings.get("loading")
    recorded = recorded if isinstance(recorded, Mapping) else {}
    name = name or (str(recorded["name"]) if "name" in recorded else None)
    if name is not None and is_local(name) and not Path(name).expanduser().exists():
        raise InputError(
            f"{place}: the model {Path(name).name!r} that made its vectors is not here; say where it is by --model"
        )
    if name is None:
        raise InputError(f"{place}: does not say which model made its vectors; name it by --model")
    chosen = {key: recorded[key] for key in RECORDED_OPTIONS if recorded.get(key) is not None}
    chosen |= {key: value for key, value in options.items() if value is not None}
    model = LayerModel.load(name, mix=recorded.get("mix"), **chosen)
    made_by = model_of(settings, width, model)
    if made_by is None:
        made = "by another model" if "model" in settings else f"with {width} numbers a vector, by another model"
        raise InputError(f"{place}: its vectors were made {made} than {name}; give that one by --model, or embed again")
    return made_by


def embed_queries(
    model: LayerModel, settings: Mapping[str, Any], texts: Sequence[str], *, prompt_name: str | None = None
) -> Array:
    """Embed queries with the settings of the vectors, by default with the model's prompt "query" if it has one."""
    name = prompt_name or ("query" if model.prompts["query"] else None)
    embeddings: Array = model.encode(
        list(texts),
        prompt_name=name,
        normalize_embeddings=bool(settings.get("normalize")),
        truncate_dim=settings.get("truncate_dim"),
    )
    return embeddings
