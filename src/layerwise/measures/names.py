"""Short names for models and trainings that are known by their folders."""

from collections.abc import Sequence
from pathlib import Path


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the last path component in which all paths differ, otherwise the shortest distinct suffixes.

    Equal paths are returned as they are.

    >>> short_names(["runs/a/model", "runs/b/model"])
    ['a', 'b']
    >>> short_names(["x/model", "model"])
    ['x/model', 'model']
    """
    parts = [Path(path).parts for path in paths]
    for count in range(1, max(map(len, parts), default=0) + 1):
        endings = [part[-count:] for part in parts]
        if len(set(endings)) == len(endings):
            heads = [ending[0] for ending in endings]
            unique = len(set(heads)) == len(heads) and min(map(len, endings)) == count
            return heads if unique else ["/".join(ending) for ending in endings]
    return list(paths)
