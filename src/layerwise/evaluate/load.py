"""From a name to what is evaluated: an encoder, a sentence-transformers model, or one of ours."""

import logging
import os
from collections.abc import Sequence
from typing import Any

from layerwise.encoder import POOLINGS
from layerwise.errors import InputError, ModelError
from layerwise.evaluate.searched import SEARCH, SearchedSubject
from layerwise.evaluate.subjects import HostSubject, LayerSubject, Subject, layer_mixes
from layerwise.mixes import parse_mix
from layerwise.model import LayerModel

log = logging.getLogger(__name__)


def as_subject(model: Any) -> Subject:
    """A subject as it is, a `LayerModel`, a name or folder, or any object that encodes."""
    if isinstance(model, Subject):
        return model
    if isinstance(model, str | os.PathLike):
        return load_subject(os.fspath(model))
    return LayerSubject(model) if isinstance(model, LayerModel) else HostSubject(model)


def check_layers(layers: Sequence[str], poolings: Sequence[str] = (), *, every_layer: bool = False) -> None:
    """Refuse what is no mix or no token pooling before a model is loaded."""
    if SEARCH in layers and (len(layers) > 1 or every_layer):
        raise InputError("--layers search stands alone: a search chooses other layers in each split")
    for mix in layers:
        if mix != SEARCH:
            parse_mix(mix)
    for pooling in poolings:
        POOLINGS[pooling]


def load_subject(
    name: str,
    *,
    layers: Sequence[str] = (),
    every_layer: bool = False,
    poolings: Sequence[str] = ("mean",),
    show_progress_bar: bool = False,
    **options: Any,
) -> Subject:
    """Load a model for evaluation.

    Args:
        name: A folder, a hub name, or "default". An encoder is read as the mean of its last layer.
        layers: Mixes instead of the model's own, or "search" (with the protocol "lc").
        every_layer: Every layer by every one of the poolings.
        poolings: For `every_layer` and the search.
        show_progress_bar: While encoding.
        options: As for `LayerEncoder`.
    """
    check_layers(layers, poolings, every_layer=every_layer)
    try:
        model = LayerModel.load(name, **options)
    except ModelError as error:
        if layers or every_layer:
            raise
        return _host(name, error, show_progress_bar, options)
    if SEARCH in layers:
        return SearchedSubject(model, poolings, show_progress_bar=show_progress_bar)
    if (layers or every_layer) and model.heads:
        log.warning("%s: what stands behind the model's own mix (heads, whitening) is left out with other layers", name)
    mixes = [*layers, *(layer_mixes(model.encoder.depth, poolings) if every_layer else ())]
    return LayerSubject(model, mixes, show_progress_bar=show_progress_bar)


def _host(name: str, why: ModelError, bar: bool, options: dict[str, Any]) -> Subject:
    """A sentence-transformers model whose modules we can't read layer by layer is evaluated as it is."""
    from layerwise.encoder import find_model

    folder = find_model(name, revision=options.get("revision"), trust_remote_code=False)
    if not folder.modules:
        raise why
    if options.get("backend", "torch") != "torch":
        raise ModelError(f"{why}; so the {options['backend']} backend can't run it: use torch")
    from sentence_transformers import SentenceTransformer

    log.warning("%s; it is evaluated as sentence-transformers encodes, without its layers", why)
    try:
        model = SentenceTransformer(
            str(folder.root),
            device=options.get("device"),
            trust_remote_code=bool(options.get("trust_remote_code")),
            local_files_only=True,
            model_kwargs={"dtype": options.get("dtype", "float32")},
        )
    except (OSError, ValueError, TypeError, ImportError) as error:
        raise ModelError(f"{why}; and sentence-transformers can't load it: {' '.join(str(error).split())}") from error
    if options.get("max_length"):
        model.max_seq_length = options["max_length"]
    return HostSubject(model, name=name, show_progress_bar=bar)
