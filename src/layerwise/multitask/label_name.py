"""What a class is called, whichever format its label comes from."""

import re
from typing import Any

_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))(?:\.0+)?")


def label_name(value: Any) -> str:
    """A label as text; nothing where there is none: null, an empty text, NaN or "nan" in any case.

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
    whole = _WHOLE.fullmatch(name)
    if whole:
        return "0" if whole[1] == "-0" else whole[1]
    return "" if name.lower() == "nan" else name
