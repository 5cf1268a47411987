"""Splits whose reporting pairs share no sentence with the pairs that choose."""

from collections.abc import Sequence

import numpy as np

from layerwise.errors import InputError
from layerwise.metrics import Numbers
from layerwise.postprocess import FittedOn
from layerwise.search.metrics import FEWEST_PAIRS
from layerwise.search.problems import Rows
from layerwise.search.select import Part


def rows_apart(left: Sequence[str], right: Sequence[str], dev: Rows, test: Rows) -> Rows:
    """The reporting pairs that share no sentence with a choosing one."""
    dev_texts = {text for row in dev for text in (left[row], right[row])}
    return np.array([row for row in test if left[row] not in dev_texts and right[row] not in dev_texts], dtype=int)


def parts_apart(
    parts: Sequence[Part], left: Sequence[str], right: Sequence[str], gold: Numbers
) -> tuple[list[Part], int]:
    """Splits without reporting pairs that share a sentence with a choosing one, and the number of pairs left out."""
    apart, left_out = [], 0
    for dev, test in parts:
        clean = rows_apart(left, right, dev, test)
        left_out += len(test) - len(clean)
        if len(clean) < FEWEST_PAIRS:
            raise InputError(
                f"{len(test) - len(clean)} of {len(test)} reporting pairs share a sentence with one that chooses and "
                f"are left out; {len(clean)} are too few; give pairs whose sentences do not repeat, or a task that "
                f"declares dev and test rows"
            )
        if np.ptp(gold[clean]) == 0:
            raise InputError(f"The {len(clean)} reporting pairs all have the same score; give more pairs")
        apart.append((dev, clean))
    return apart, left_out


def near_copies(parts: Sequence[Part], left: Sequence[str], right: Sequence[str]) -> int:
    """The number of reporting pairs, over all splits, with a sentence that is nearly a choosing one.

    They differ in case, spaces or punctuation only, which `rows_apart` does not compare.
    """
    count = 0
    for dev, test in parts:
        clean = rows_apart(left, right, dev, test)
        choosing = FittedOn.of([side[row] for side in (left, right) for row in dev], source="choosing pairs")
        seen = [choosing.seen([side[row] for row in clean]) for side in (left, right)]
        count += int((seen[0] | seen[1]).sum())
    return count
