"""Clauses of sentences as further rows of a text: short texts beside long ones.

Sentences of an encyclopaedia are longer than those that most users compare. What stands between two marks of a sentence
is short, mostly whole, and costs nothing to have.
"""

import re

_MARKS = re.compile(r"[,;:()\u2013\u2014]")
_FEWEST, _MOST = 4, 20  # words


def clauses(sentence: str) -> list[str]:
    """What stands between marks, of 4 to 20 words; none of a sentence without marks.

    >>> clauses("The bridge, built in a dry summer, was closed to all traffic (but trams).")
    ['built in a dry summer', 'was closed to all traffic']
    """
    parts = [part.strip() for part in _MARKS.split(sentence)]
    return [part for part in parts if _FEWEST <= len(part.split()) <= _MOST] if len(parts) > 1 else []
