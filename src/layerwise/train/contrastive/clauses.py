"""Splits clauses off sentences, as additional short texts.

Sentences of an encyclopaedia are longer than most texts that users compare. The clauses between punctuation marks are
short, mostly complete, and free.
"""

import re

_MARKS = re.compile(r"[,;:()\u2013\u2014]")
_FEWEST, _MOST = 4, 20  # words


def clauses(sentence: str) -> list[str]:
    """Return the clauses of 4 to 20 words between punctuation marks; none for a sentence without marks.

    >>> clauses("The bridge, built in a dry summer, was closed to all traffic (but trams).")
    ['built in a dry summer', 'was closed to all traffic']
    """
    parts = [part.strip() for part in _MARKS.split(sentence)]
    return [part for part in parts if _FEWEST <= len(part.split()) <= _MOST] if len(parts) > 1 else []
