"""Short names for models and trainings that are given by their folders."""

from collections.abc import Sequence
from pathlib import Path


def told_apart(names: Sequence[str]) -> list[str]:
    """What paths differ in, from their ends; where one has nothing left to differ in, the shortest ends that do.

    Equal paths stay as they are.

    >>> told_apart(["runs/a/model", "runs/b/model"])
    ['a', 'b']
    >>> told_apart(["x/model", "model"])
    ['x/model', 'model']
    """
    parts = [Path(name).parts for name in names]
    for count in range(1, max(map(len, parts), default=0) + 1):
        ends = [own[-count:] for own in parts]
        if len(set(ends)) == len(ends):
            heads = [end[0] for end in ends]
            alone = len(set(heads)) == len(heads) and min(map(len, ends)) == count
            return heads if alone else ["/".join(end) for end in ends]
    return list(names)
