"""The protocol of evaluated subjects: a name, facts, variants of embedding, and embeddings.

This module and what it imports need no torch, so that stored results are shown at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from layerwise.data import TaskRows
from layerwise.encoder import Array
from layerwise.errors import InputError
from layerwise.kinds import Outcome, Protocol, RowProblem, prepare
from layerwise.muted import muted
from layerwise.postprocess import FittedOn


@dataclass(frozen=True)
class Variant:
    """One way to embed with a subject.

    Args:
        label: The text of the mix, or another name.
        layers: Of the mix.
        pooling: Of the mix.
        facts: They go into the stamp and decide whether a stored result is the same.
        heads: The heads that follow the mix, in words.
    """

    label: str
    layers: tuple[int, ...] = ()
    pooling: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    heads: str = ""


class Subject(ABC):
    """The subject of an evaluation: anything with a name, facts and embeddings."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in results."""

    @property
    def variants(self) -> Sequence[Variant]:
        """The variants of embedding, one result each."""
        return [Variant("as it encodes")]

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Hashes and settings, the same for all variants."""

    @abstractmethod
    def embed(self, texts: Sequence[str], role: str, variants: Sequence[Variant]) -> Iterator[Array]:
        """Embeddings (texts, width) by each of the variants; `role` is "query", "document" or nothing."""

    def records(self, variant: Variant) -> tuple[FittedOn, ...]:  # noqa: ARG002 - other subjects need it
        """Return the records of text that a variant was fitted or trained on; empty if not recorded."""
        return ()

    def saw(self, texts: Sequence[str], variant: Variant) -> float | None:
        """Return the share of these texts that a variant was fitted or trained on; None if not recorded.

        A record of unknown text rules out a share of 0.
        """
        records = self.records(variant)
        shares = [record.saw(texts) for record in records if record.digest]
        return max(shares) if any(shares) or (shares and len(shares) == len(records)) else None

    def outcomes(self, rows: TaskRows, protocol: Protocol, variants: Sequence[Variant]) -> Iterator[Outcome]:
        """Compute the outcome of a task by each variant, from one pass over its texts."""
        problem = problem_of(rows, protocol)
        embedded = zip(*(self.embed(texts, role, variants) for role, texts in problem.texts.items()), strict=True)
        for number, (variant, vectors) in enumerate(zip(variants, embedded, strict=True)):
            for texts, by_variant in zip(problem.texts.values(), vectors, strict=True):
                check_finite(by_variant, texts, f"{rows.task.name}, {self.name} by {variant.label}")
            with muted("layerwise.kinds.classification") if number else nullcontext():  # warn of rows once
                outcome = problem.score(dict(zip(problem.texts, vectors, strict=True)))
            yield outcome


def problem_of(rows: TaskRows, protocol: Protocol) -> Any:
    """The texts to embed and the score of their vectors: a `Problem`, or by "lc" its `RandomSplits`."""
    problem = prepare(rows, protocol)
    if protocol.name == "lc" and isinstance(problem, RowProblem) and problem.splits_at_random:
        from layerwise.evaluate.lc import RandomSplits  # imports the search, which nothing else needs

        return RandomSplits(problem, protocol.seeds)
    return problem


def check_finite(vectors: Array, texts: Sequence[str], label: str) -> None:
    """Raise for non-finite embeddings."""
    broken = np.flatnonzero(~np.isfinite(vectors).all(1))
    if len(broken):
        text = texts[int(broken[0])]
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise InputError(
            f"{label}: {len(broken)} of {len(texts)} embeddings have NaN or infinite numbers, the first that of "
            f"{shown!r}; check the weights, or evaluate in float32"
        )
