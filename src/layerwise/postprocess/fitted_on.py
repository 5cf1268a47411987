"""Records of the text that something was fitted on, as hashes that detect overlap with test sentences.

A sentence is stored as 8 bytes of a hash of its letters and digits, so a million sentences take 8 MB. Case, spaces and
punctuation are ignored: STS sets come tokenised ("did n't") and raw ("Didn't"), which must be equal.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from layerwise.encoder import ModelFolder
from layerwise.errors import InputError, ModelError
from layerwise.texts import letters_of

Hashes = NDArray[np.uint64]
ENCODER = "encoder"  # a value of `what`: the encoder was trained on the text, so it applies to any mix
LAYERS = "layers"  # a value of `what`: the text chose the layers of the mix
_FOLDER = "fitted_on"  # a subfolder of a model's folder
_HASH_BYTES = 8


@dataclass(frozen=True, eq=False)
class FittedOn:
    """The record of a text that something was fitted on.

    Args:
        source: The name of the text, such as "wiki1m, first 50,000".
        sentences: The number of sentences, including repetitions.
        digest: SHA-256 of the sorted unique sentences, see `text_digest`; empty if the text is unknown.
        hashes: The hashes of the unique sentences, sorted.
        what: What was fitted: "whitening", "flow", …, `ENCODER` for training text, `LAYERS` for text that chose layers.

    >>> fitted_on = FittedOn.of(["A cat sat.", "It rained."], source="two sentences")
    >>> fitted_on.saw(["it rained .", "It snowed."])
    0.5
    """

    source: str
    sentences: int
    digest: str
    hashes: Hashes = field(repr=False)
    what: str = ""

    @classmethod
    def of(cls, texts: Sequence[str], *, source: str, what: str = "") -> Self:
        """Record sentences, which are not stored themselves."""
        if isinstance(texts, str):
            raise InputError("texts is one string; give a list of them")
        return cls(source, len(texts), text_digest(texts), np.unique(_hashes(texts)), what)

    @classmethod
    def of_parts(cls, parts: Iterable[Sequence[str]], *, source: str, what: str = "") -> Self:
        """Record a text that is streamed in parts; its digest is that of the sorted hashes."""
        sentences, hashes = 0, np.empty(0, dtype=np.uint64)
        for part in parts:
            sentences += len(part)
            hashes = np.union1d(hashes, _hashes(part))
        return cls(source, sentences, hashlib.sha256(hashes.tobytes()).hexdigest(), hashes, what)

    @classmethod
    def unknown(cls, sentences: int) -> Self:
        """The record of embeddings of unknown text."""
        return cls("unknown text", sentences, "", np.empty(0, dtype=np.uint64))

    @property
    def different(self) -> int:
        """The number of unique sentences."""
        return len(self.hashes)

    def seen(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """A mask of the texts that are among the sentences: (texts,)"""
        if not self.digest:
            raise InputError(
                f"{self.source}: what was seen is not recorded; fit it again with fitted_on=FittedOn.of(…)"
            )
        return np.isin(_hashes(texts), self.hashes)

    def saw(self, texts: Sequence[str]) -> float:
        """The share of the texts that are among the sentences: 0 for a clean test; NaN if the sentences are unknown."""
        return float(self.seen(texts).mean()) if self.digest and len(texts) else float("nan")

    def named(self, what: str) -> Self:
        """The same record with another `what`."""
        return replace(self, what=what)

    def facts(self) -> dict[str, Any]:
        """For JSON, without the hashes."""
        return {
            "what": self.what,
            "source": self.source,
            "sentences": self.sentences,
            "different": self.different,
            "digest": self.digest,
        }

    def __str__(self) -> str:
        repeats = self.digest and self.different < self.sentences
        different = f", {self.different:,} of them different" if repeats else ""
        return f"{self.sentences:,} sentences of {self.source}{different}"

    def __eq__(self, other: object) -> bool:
        """Whether the facts are equal; the digest represents the hashes."""
        return isinstance(other, FittedOn) and self.facts() == other.facts()

    def __hash__(self) -> int:
        return hash((self.what, self.source, self.sentences, self.digest))


def text_digest(texts: Iterable[str]) -> str:
    """SHA-256 of the sorted unique sentences, each prefixed with its length."""
    digest = hashlib.sha256()
    for data in sorted(set(map(_normalize, texts))):
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _hashes(texts: Sequence[str]) -> Hashes:
    data = b"".join(hashlib.blake2b(_normalize(text), digest_size=_HASH_BYTES).digest() for text in texts)
    return np.frombuffer(data, dtype="<u8").astype(np.uint64)


def _normalize(text: str) -> bytes:
    return letters_of(text).encode("utf-8", "surrogatepass")


def write_records(folder: Path, records: Sequence[FittedOn]) -> list[dict[str, Any]]:
    """Write the hashes of each record into a model's folder; returns the records for JSON, with these file names."""
    facts = []
    for number, record in enumerate(records):
        path = folder / _FOLDER / f"{number}.safetensors"
        path.parent.mkdir(exist_ok=True)
        save_file({"hashes": record.hashes}, path)
        facts.append(record.facts() | {"hashes": f"{_FOLDER}/{path.name}"})
    return facts


def read_records(folder: ModelFolder) -> tuple[FittedOn, ...]:
    """Read the records of a model's folder, in their order."""
    records = folder.read_json("layerwise.json").get("fitted_on") or []
    if not isinstance(records, list) or not all(isinstance(facts, dict) for facts in records):
        raise ModelError(
            f"{folder.root / 'layerwise.json'}: fitted_on is no list of records; download the folder again"
        )
    return tuple(_read_record(folder, facts) for facts in records)


def _read_record(folder: ModelFolder, facts: dict[str, Any]) -> FittedOn:
    path = folder.root / _FOLDER / Path(str(facts.get("hashes", ""))).name  # never a file outside the folder
    try:
        hashes = load_file(path)["hashes"].astype(np.uint64)
        record = FittedOn(
            str(facts["source"]), int(facts["sentences"]), str(facts["digest"]), hashes, str(facts["what"])
        )
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path}: what the model was fitted on cannot be read ({error}); copy or download the folder again"
        ) from error
    if record.different != facts.get("different"):
        raise ModelError(f"{path}: {record.different} hashes, but layerwise.json says {facts.get('different')}")
    return record
