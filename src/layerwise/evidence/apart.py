"""Sentences kept apart: which units share one, and how the units of a split are told from those that leak."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layerwise.texts import letters_of

Rows = NDArray[np.intp]
Texts = Sequence[Sequence[str]]  # the sentences of each unit
_MAX_GROUP = 0.25  # share of the units that resamples draw as a whole at most


def connected_groups(units: int, texts: Texts | None = None, groups: ArrayLike | None = None) -> Rows:
    """Number the groups of units that are connected by shared sentences or by a common group: (units,)

    Without repetitions every unit is a group by itself.

    >>> connected_groups(4, [["a", "b"], ["c", "d"], ["b", "e"], ["e", "f"]])
    array([0, 1, 0, 0])
    """
    members: dict[Hashable, int] = {}
    edges: list[tuple[int, int]] = []
    for unit, names in enumerate(_names(units, texts, groups)):
        edges += ((unit, members.setdefault(name, len(members))) for name in names)
    if len(edges) == len(members):
        return np.arange(units)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows, columns = np.array(edges).T
    size = units + len(members)
    graph = coo_array((np.ones(len(edges), dtype=bool), (rows, units + columns)), shape=(size, size))
    labels = connected_components(graph, directed=False)[1][:units]
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[inverse], dtype=np.intp)  # numbered in order of appearance


def resampled_groups(connected: Rows, texts: Texts | None) -> Rows:
    """Return the groups of units that are drawn as a whole in resamples: (units,)

    These are the connected ones, unless one of them holds more than a quarter of the units, as chains of shared
    sentences do: then they are the units with the same sentence, the most repeated one of each. A sentence in more than
    a quarter of the units is a fixed part of the task, such as an instruction, not a drawn one, and groups nothing.
    """
    limit = _MAX_GROUP * len(connected)
    if texts is None or np.bincount(connected).max(initial=0) <= limit:
        return connected
    counts = Counter(text for own in texts for text in set(own))
    numbers: dict[Hashable, int] = {}
    groups = []
    for unit, own in enumerate(texts):
        repeated = [text for text in own if 1 < counts[text] <= limit]
        name: Hashable = max(repeated, key=counts.__getitem__) if repeated else unit
        groups.append(numbers.setdefault(name, len(numbers)))
    return np.array(groups, dtype=np.intp)


def without_leaks(dev: Rows, test: Rows, texts: Texts) -> Rows:
    """Return the reporting units that share no sentence with a choosing one."""
    choosing = _texts_of(dev, texts)
    return np.array([unit for unit in test if choosing.isdisjoint(texts[unit])], dtype=np.intp)


def near_copies(splits: Iterable[Sequence[Rows]], texts: Texts) -> int:
    """Count the reporting units, over all splits, with a sentence that is nearly a choosing one.

    The two differ in case, spaces or punctuation only. Units that share an identical sentence are not counted.
    """
    letters = [[letters_of(text) for text in own] for own in texts]
    count = 0
    for dev, test in splits:
        apart = without_leaks(dev, test, texts)
        count += len(apart) - len(without_leaks(dev, apart, letters))
    return count


def _texts_of(units: Rows, texts: Texts) -> set[str]:
    return {text for unit in units for text in texts[unit]}


def _names(units: int, texts: Texts | None, groups: ArrayLike | None) -> Iterable[set[Hashable]]:
    """What each unit has in common with others: its sentences, and its group."""
    labels: list[Any] = [] if groups is None else np.asarray(groups).tolist()
    for unit in range(units):
        names: set[Hashable] = set() if texts is None else set(texts[unit])
        yield names if groups is None else names | {("group", labels[unit])}
