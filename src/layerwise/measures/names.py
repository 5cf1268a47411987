"""Short names for models and trainings that are given by their folders."""

from collections.abc import Sequence
from pathlib import Path


def told_apart(names: Sequence[str]) -> list[str]:
    """The shortest ends of paths that all differ; equal paths stay as they are.

    >>> told_apart(["runs/a/model", "runs/b/model"])
    ['a/model', 'b/model']
    """
    parts = [Path(name).parts for name in names]
    for count in range(1, max(map(len, parts), default=0) + 1):
        ends = ["/".join(own[-count:]) for own in parts]
        if len(set(ends)) == len(ends):
            return ends
    return list(names)
