"""Chooses the encoder blocks of a student: by number, at even distances, or by a search without training.

The search starts with all blocks and greedily removes the one without which the similarities of some sentences agree
best with the teacher's (Spearman of the cosines of all pairs).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from layerwise.encoder import Array, LayerEncoder, even_blocks
from layerwise.errors import InputError
from layerwise.metrics import spearman

Embed = Callable[[LayerEncoder], Array]
_LIST = re.compile(r"\d+(-\d+)?(\s*,\s*\d+(-\d+)?)*")
_BEST = re.compile(r"best\s+(\d+)")
_FORMS = 'expected a number, such as 6 (at even distances), "best 6" (found by a search) or their numbers, "1,4,7-9"'


@dataclass(frozen=True)
class KeptBlocks:
    """The blocks, numbered from 1, the original depth, and how they were chosen, for results and the model card."""

    kept: tuple[int, ...]
    of: int
    chosen: str


def check_blocks(blocks: int | str) -> None:
    """Raise for an invalid setting."""
    if not (_BEST.fullmatch(str(blocks)) or _LIST.fullmatch(str(blocks))):
        raise InputError(f"blocks is {blocks!r}; {_FORMS}")


def kept_blocks(blocks: int | str, depth: int) -> KeptBlocks | int:
    """Resolve a setting to blocks of `depth`; for "best N", return N for `search_blocks`."""
    check_blocks(blocks)
    text = str(blocks)
    best = _BEST.fullmatch(text)
    if best or text.isdecimal():
        count = int(best[1] if best else text)
        if not 1 <= count <= depth:
            raise InputError(f"[model] blocks is {blocks!r}, but the encoder has {depth}; give 1 to {depth}")
        return count if best else KeptBlocks(even_blocks(count, depth), depth, "at even distances")
    numbers = [number for part in text.split(",") for number in _range(part)]
    if not numbers or max(numbers) > depth or min(numbers) < 1 or numbers != sorted(set(numbers)):
        raise InputError(f"[model] blocks is {blocks!r}; give different ones from 1 to {depth}, in rising order")
    return KeptBlocks(tuple(numbers), depth, "by hand")


def search_blocks(encoder: LayerEncoder, count: int, *, embed: Embed, teacher: Array, source: str) -> KeptBlocks:
    """Select the `count` blocks that agree best with the teacher's similarities, removing one block at a time.

    Args:
        encoder: The encoder with all blocks.
        count: The number of blocks to keep.
        embed: Embeds the sentences by an encoder with fewer blocks, (n, width).
        teacher: The teacher's embeddings of the same sentences, (n, any width).
        source: A description of the teacher, for the record.
    """
    expected, selected = pair_cosines(teacher), tuple(range(1, encoder.depth + 1))
    score = agreement(embed(encoder), expected)
    while len(selected) > count:
        choices = [selected[:index] + selected[index + 1 :] for index in range(len(selected))]
        scores = [agreement(embed(encoder.with_blocks(choice)), expected) for choice in choices]
        best = int(np.argmax(scores))
        selected, score = choices[best], scores[best]
    chosen = f"by leaving out one at a time, without training: Spearman {score:.3f} with the similarities of {source}"
    return KeptBlocks(selected, encoder.depth, chosen)


def agreement(embeddings: Array, expected: Array) -> float:
    """Return Spearman's correlation of the cosines of all pairs (n, d) with the expected ones; -1 if constant."""
    score = spearman(pair_cosines(embeddings), expected)
    return -1.0 if np.isnan(score) else score


def pair_cosines(embeddings: Array) -> Array:
    """Compute the cosines of all pairs of rows: (n, d) -> (n (n - 1) / 2,)"""
    unit = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)
    return np.asarray((unit @ unit.T)[np.triu_indices(len(unit), 1)])


def sample_evenly(texts: Sequence[str], count: int) -> list[str]:
    """Return `count` texts at even distances, or all if there are fewer."""
    indices = np.linspace(0, len(texts) - 1, min(count, len(texts))).round().astype(int)
    return [texts[index] for index in indices]


def _range(part: str) -> range:
    first, _, last = part.strip().partition("-")
    return range(int(first), int(last or first) + 1)
