"""Values as JSON knows them."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any


def plain_json(value: Any) -> Any:
    """Without NaN and infinity, which JSON does not know (null instead), and without NumPy's arrays and numbers.

    >>> plain_json({"score": float("nan"), "layers": (0, 12)})
    {'score': None, 'layers': [0, 12]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, str):
        return value
    if hasattr(value, "tolist"):  # an array or a number of NumPy's, which need not be imported for it
        return plain_json(value.tolist())
    if isinstance(value, Sequence):
        return [plain_json(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
