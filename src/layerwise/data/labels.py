"""Labels from any file format: names of classes, or numbers."""

import math
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))(?:\.0+)?")


def label_name(value: Any) -> str:
    """Return the name of a class; empty if missing: null, an empty text, NaN or "nan" in any case.

    A whole number is one class however it is written: 1, 1.0, "1" and "1.0", which pandas makes of a column with gaps,
    are "1". Any other text stays as it is: "007" and "1e3" are codes, "1.10" is not "1.1".

    >>> [label_name(value) for value in (1.0, "1.00", "007", "1.10", "NaN")]
    ['1', '1', '007', '1.10', '']
    """
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    name = str(value).strip()
    match = _WHOLE.fullmatch(name)
    if match:
        return "0" if match[1] == "-0" else match[1]
    return "" if name.lower() == "nan" else name


def look_alikes(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return names that look identical: they differ only by surrounding spaces or Unicode normalisation.

    >>> look_alikes(["yes", "no", "yes "])
    [('yes', 'yes ')]
    """
    first: dict[str, str] = {}
    pairs = []
    for name in names:
        alike = first.setdefault(" ".join(unicodedata.normalize("NFKC", name).split()), name)
        if alike != name:
            pairs.append((alike, name))
    return pairs


def as_number(value: Any) -> float | None:
    """Convert a value to a finite number, or None.

    >>> [as_number(value) for value in ("3e-1", 2, "high", None, "nan")]
    [0.3, 2.0, None, None, None]
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def is_missing(value: Any) -> bool:
    """Whether a file has no label there: null, an empty text, or a number that is not finite."""
    return value is None or value == "" or (isinstance(value, float) and not math.isfinite(value))


def listed(names: Any, most: int = 12) -> str:
    """Format some names, for errors.

    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b', … (3 in all)"
    """
    shown = ", ".join(map(repr, list(names)[:most]))
    return shown if len(names) <= most else f"{shown}, … ({len(names)} in all)"
