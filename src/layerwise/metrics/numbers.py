"""The types of metrics."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Figures = dict[str, float]
Numbers = NDArray[np.floating[Any]]
Codes = NDArray[np.intp]  # classes or clusters as numbers
Redraw = Callable[[Numbers, Numbers, Numbers], Numbers]  # items (rows,), gold (rows,), counts (draws, rows) -> (draws,)
