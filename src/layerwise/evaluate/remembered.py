"""Remembers evaluated models by their files, so that they are identified without loading the weights.

Where every result is stored, nothing else is needed. Where one is missing, the model is loaded then.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from layerwise.checksums import read_checked_json, write_checked_json
from layerwise.data import TaskRows
from layerwise.digests import file_sha256, json_digest
from layerwise.encoder import Array, ModelFolder, find_model
from layerwise.errors import InputError
from layerwise.evaluate.subject import Subject, Variant
from layerwise.kinds import Outcome, Protocol
from layerwise.postprocess import ENCODER, FittedOn, read_records
from layerwise.version import __version__

log = logging.getLogger(__name__)

_FORMAT = 1
_DECIDING = (".json", ".txt", ".model", ".safetensors", ".jinja", ".py")  # endings of files that decide an embedding


class Memory:
    """A folder of JSON files with the identifying facts of loaded models.

    Args:
        folder: Where they are.
        model: The model's files.
        choice: What was chosen about the model: options of loading, layers.
    """

    def __init__(self, folder: Path, model: ModelFolder, choice: dict[str, Any]) -> None:
        packages = {name: version(name) for name in ("torch", "transformers", "tokenizers")}
        known_by = {"format": _FORMAT, "files": files_digest(model.root), "choice": choice, "layerwise": __version__}
        self._path = folder / f"{json_digest(known_by | packages)[:32]}.json"
        self._model = model

    @classmethod
    def of(
        cls,
        folder: Path,
        name: str,
        *,
        layers: Sequence[str] = (),
        every_layer: bool = False,
        poolings: Sequence[str] = ("mean",),
        **options: Any,
    ) -> Self:
        """Build from a model and the options of `load_subject`."""
        source = {key: options[key] for key in ("revision", "trust_remote_code") if key in options}
        choice = {"options": options, "layers": layers, "every_layer": every_layer, "poolings": poolings}
        return cls(folder, find_model(name, **source), choice)

    def recall(self, load: Callable[[], Subject]) -> Subject | None:
        """Return the remembered subject, which calls `load` if it must embed; None if it is unknown or damaged."""
        if not self._path.is_file():
            return None
        try:
            known = read_checked_json(self._path)
            variants = [Variant(**{**variant, "layers": tuple(variant["layers"])}) for variant in known["variants"]]
        except (InputError, KeyError, TypeError, ValueError):
            log.warning("%s: is damaged; the model is loaded again", self._path)
            return None
        uses_own_mix = known["own_mix"]
        records = [record for record in read_records(self._model) if uses_own_mix or record.what == ENCODER]
        return RememberedSubject(self._model.name, known["facts"], variants, records, load)

    def keep(self, subject: Subject, *, own_mix: bool) -> None:
        """Remember a loaded subject; `own_mix` tells whether it embeds by the mix that the model was saved with."""
        variants = [asdict(variant) for variant in subject.variants]
        write_checked_json(self._path, {"facts": subject.facts(), "variants": variants, "own_mix": own_mix})


class RememberedSubject(Subject):
    """A subject with known facts, which is loaded when it must embed."""

    def __init__(
        self,
        name: str,
        facts: dict[str, Any],
        variants: Sequence[Variant],
        records: Sequence[FittedOn],
        load: Callable[[], Subject],
    ) -> None:
        self._name, self._facts, self._variants = name, facts, list(variants)
        self._records, self._load = tuple(records), load

    @property
    def name(self) -> str:
        """The name by which the model was requested."""
        return self._name

    @property
    def variants(self) -> list[Variant]:
        """As they were."""
        return self._variants

    def facts(self) -> dict[str, Any]:
        """As they were, but for the name: the folder may have another one now."""
        return self._facts | {"model": self._name}

    def records(self, variant: Variant) -> tuple[FittedOn, ...]:  # noqa: ARG002 - the same for all
        """Those in the model's folder."""
        return self._records

    def embed(self, texts: Sequence[str], role: str, variants: Sequence[Variant]) -> Iterator[Array]:
        """By the loaded model."""
        return self._loaded.embed(texts, role, variants)

    def outcomes(self, rows: TaskRows, protocol: Protocol, variants: Sequence[Variant]) -> Iterator[Outcome]:
        """By the loaded model."""
        return self._loaded.outcomes(rows, protocol, variants)

    @cached_property
    def _loaded(self) -> Subject:
        return self._load()


def files_digest(folder: Path) -> str:
    """Hash the names and contents of all files of a folder that affect embeddings."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in _DECIDING and path.is_file())
    return json_digest([[path.relative_to(folder).as_posix(), file_sha256(path)] for path in files])
