"""Which passages answer which query, from rows that say so."""

from collections.abc import Iterable, Mapping


def relevant_passages(rows: Iterable[tuple[str, str, float]], places: Mapping[str, int]) -> dict[str, dict[int, float]]:
    """(query, passage, grade) -> by query, in order: the passage's place -> grade; a grade of 0 says that it is none.

    >>> relevant_passages([("why?", "because", 1), ("why?", "no", 0), ("who?", "me", 2)], {"because": 0, "me": 1})
    {'why?': {0: 1}, 'who?': {1: 2}}
    """
    found: dict[str, dict[int, float]] = {}
    for query, passage, grade in rows:
        if grade > 0:
            found.setdefault(query, {})[places[passage]] = grade
    return found
