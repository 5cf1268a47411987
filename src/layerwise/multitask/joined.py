"""Which tasks of a step go through the encoder together, and how.

A pass over a few short texts takes a GPU about as long as one over many: most of its time goes into launching. Padding
texts of several tasks to one length costs less than a pass more, unless one task's texts are much longer.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def joined(shapes: Mapping[str, tuple[int, int]], *, most: float) -> list[list[str]]:
    """Tasks in groups, shortest texts first.

    >>> joined({"reviews": (32, 256), "pairs": (64, 32), "words": (32, 40)}, most=1.5)
    [['pairs', 'words'], ['reviews']]

    Args:
        shapes: Rows and length of each task's batch.
        most: A group has at most so many times the tokens that its tasks have padded apart; 1: only equal lengths.
    """
    groups: list[list[str]] = []
    for name in sorted(shapes, key=lambda name: shapes[name][1]):
        together = [*groups[-1], name] if groups else [name]
        apart = sum(rows * length for rows, length in (shapes[one] for one in together))
        padded = sum(shapes[one][0] for one in together) * shapes[name][1]  # the longest so far
        if groups and padded <= most * apart:
            groups[-1] = together
        else:
            groups.append([name])
    return groups


def stacked(batches: Sequence[Mapping[str, Tensor]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Token numbers and mask of all batches, one below the other, padded to the longest: (rows, t) twice."""
    tokens = [batch["input_ids"] for batch in batches]
    masks = [batch["attention_mask"] for batch in batches]
    if len(batches) == 1:
        return tokens[0], masks[0]
    length = max(one.shape[1] for one in tokens)
    return (
        torch.cat([F.pad(one, (0, length - one.shape[1]), value=pad_id) for one in tokens]),
        torch.cat([F.pad(one, (0, length - one.shape[1])) for one in masks]),
    )
