"""Loads the subject of an evaluation by name: an encoder, a sentence-transformers model, ours, or a layer search."""

import logging
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from layerwise.data import TaskRows
from layerwise.encoder import Array, ModelFolder, find_model, parse_pooling
from layerwise.errors import InputError, ModelError, UnsafeModelError
from layerwise.evaluate.remembered import Memory
from layerwise.evaluate.subject import Subject, Variant, problem_of
from layerwise.evaluate.subjects import HostSubject, LayerSubject, layer_mixes
from layerwise.kinds import Outcome, Protocol, problem_class
from layerwise.mixes import parse_mix
from layerwise.model import LayerModel
from layerwise.postprocess import FittedOn

log = logging.getLogger(__name__)

_HOST_PACKAGES = (
    "sentence_transformers.models",
    "sentence_transformers.base.modules",
    "sentence_transformers.sentence_transformer.modules",
    *(f"sentence_transformers.base.modules.{name}" for name in ("transformer", "dense", "normalize")),
    *(
        f"sentence_transformers.sentence_transformer.modules.{name}"
        for name in ("pooling", "layer_norm", "dropout", "weighted_layer_pooling", "cnn", "lstm", "static_embedding")
    ),
)
_HOST_MODULES = (
    *("Transformer", "Pooling", "Dense", "Normalize", "LayerNorm", "Dropout"),
    *("WeightedLayerPooling", "CNN", "LSTM", "StaticEmbedding"),
)

SEARCH = "search"


def as_subject(model: Any) -> Subject:
    """Convert a `LayerModel`, a name or folder, or any object with `encode` to a subject."""
    if isinstance(model, Subject):
        return model
    if isinstance(model, str | os.PathLike):
        return load_subject(os.fspath(model))
    return LayerSubject(model) if isinstance(model, LayerModel) else HostSubject(model)


def check_layers(layers: Sequence[str], poolings: Sequence[str] = (), *, every_layer: bool = False) -> None:
    """Raise for invalid mixes or token poolings, before a model is loaded."""
    if SEARCH in layers and (len(layers) > 1 or every_layer):
        raise InputError("--layers search cannot be combined: a search chooses other layers in each split")
    for mix in layers:
        if mix != SEARCH:
            parse_mix(mix)
    for pooling in poolings:
        parse_pooling(pooling)


def load_subject(
    name: str,
    *,
    layers: Sequence[str] = (),
    every_layer: bool = False,
    poolings: Sequence[str] = ("mean",),
    show_progress_bar: bool = False,
    memory: Path | None = None,
    **options: Any,
) -> Subject:
    """Load a model for evaluation.

    Args:
        name: A folder, a hub name, or "default". Of an encoder the mean of the last layer is evaluated.
        layers: Mixes instead of the model's, or "search" (with the protocol "lc").
        every_layer: Every layer by every one of the poolings.
        poolings: For `every_layer` and the search.
        show_progress_bar: While encoding.
        memory: A folder where what identifies a model is kept: one that was loaded before is then loaded only when
            it must embed.
        options: As for `LayerEncoder`.
    """
    check_layers(layers, poolings, every_layer=every_layer)
    load = partial(_load, name, layers, every_layer, poolings, show_progress_bar, options)
    if memory is None:
        return load()
    known = Memory.of(memory, name, layers=layers, every_layer=every_layer, poolings=poolings, **options)
    subject = known.recall(load)
    if subject is None:
        subject = load()
        if not isinstance(subject, HostSubject):
            known.keep(subject, own_mix=not layers and not every_layer)
    return subject


def _load(
    name: str,
    layers: Sequence[str],
    every_layer: bool,
    poolings: Sequence[str],
    show_progress_bar: bool,
    options: dict[str, Any],
) -> Subject:
    try:
        model = LayerModel.load(name, **options)
    except UnsafeModelError:
        raise
    except ModelError as error:
        if layers or every_layer:
            raise
        return _host(name, error, show_progress_bar, options)
    if SEARCH in layers:
        return SearchedSubject(model, poolings, show_progress_bar=show_progress_bar)
    if (layers or every_layer) and model.heads:
        log.warning("%s: the model's heads (whitening and the like) are left out with other layers", name)
    mixes = [*layers, *(layer_mixes(model.encoder.depth, poolings) if every_layer else ())]
    return LayerSubject(model, mixes, show_progress_bar=show_progress_bar)


def _host(name: str, why: ModelError, bar: bool, options: dict[str, Any]) -> Subject:
    """Load a sentence-transformers model whose layers cannot be read."""
    folder = find_model(name, revision=options.get("revision"), trust_remote_code=False)
    if not folder.modules:
        raise why
    if options.get("precision", "float") != "float":
        raise ModelError(f"{why}; so it cannot run in {options['precision']}: use precision float")
    if (options.get("backend") or "torch") != "torch":
        raise ModelError(f"{why}; so the {options['backend']} backend cannot run it: use torch")
    if not options.get("trust_remote_code"):
        _check_modules(folder)
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
    except Exception as error:
        raise ModelError(f"{why}; and sentence-transformers cannot load it: {' '.join(str(error).split())}") from error
    if options.get("max_length"):
        model.max_seq_length = options["max_length"]
    return HostSubject(model, name=name, show_progress_bar=bar)


def _check_modules(folder: ModelFolder) -> None:
    """Raise for modules that are not built into sentence-transformers, as they may import other code."""
    for module in folder.modules:
        package, _, kind = str(module["type"]).rpartition(".")
        if package not in _HOST_PACKAGES or kind not in _HOST_MODULES:
            raise UnsafeModelError(
                f"{folder.root}: its module {module['type']} may run code, which is not done unless you trust it: "
                f"--trust-remote-code"
            )


class SearchedSubject(Subject):
    """A model without a fixed mix: by BERT-LC's protocol, the layers are chosen in every split.

    Args:
        model: Whose layers are searched.
        poolings: Token poolings to choose from, for graded pairs; classes are searched by the first of them.
        show_progress_bar: While encoding.
    """

    def __init__(
        self, model: LayerModel, poolings: Sequence[str] = ("mean",), *, show_progress_bar: bool = False
    ) -> None:
        self._layers = LayerSubject(model, ["last"], show_progress_bar=show_progress_bar)  # without heads
        self.poolings = tuple(poolings)

    @property
    def name(self) -> str:
        """The encoder's name."""
        return self._layers.name

    @property
    def variants(self) -> list[Variant]:
        """One: the layers that the search chooses."""
        return [Variant(SEARCH, (), "+".join(self.poolings))]

    def facts(self) -> dict[str, Any]:
        """The facts of the model."""
        return self._layers.facts()

    def records(self, variant: Variant) -> tuple[FittedOn, ...]:  # noqa: ARG002 - the same for all
        """Of the encoder; the model's mix and heads have no part in the search."""
        return self._layers.records(self._layers.variants[0])

    def embed(self, texts: Sequence[str], role: str, variants: Sequence[Variant]) -> Iterator[Array]:  # noqa: ARG002
        """Raise, as each split has other layers."""
        raise InputError("layers that are searched split by split give no embedding; use `layerwise search`")

    def outcomes(self, rows: TaskRows, protocol: Protocol, variants: Sequence[Variant]) -> Iterator[Outcome]:
        """The outcome of a search, on rows that had no part in it."""
        if protocol.name != "lc" or not problem_class(rows.task).splits_at_random:
            raise InputError(
                f"layers cannot be searched for task {rows.task.name!r} under the protocol {protocol.name!r}: "
                f"use --protocol lc with STS or classification, or choose a mix with `layerwise search` first"
            )
        problem = problem_of(rows, protocol)
        for _ in variants:
            yield problem.search(self._layers.views, self.poolings)
