"""Checks of the inputs of figures: arrays of the expected shape, named series, existing layers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from layerwise.errors import InputError
from layerwise.plots.style import MARKERS

Numbers = NDArray[np.float64]


def check_numbers(
    name: str, values: ArrayLike, *, shape: tuple[int | None, ...] = (None,), gaps: bool = False
) -> Numbers:
    """Convert values to a float64 array of a shape (None: any length above 0); NaN only if gaps are allowed."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name}: not all values are numbers; give an array of {len(shape)} dimension(s)") from None
    has_shape = array.ndim == len(shape) and all(
        length in (None, actual) for length, actual in zip(shape, array.shape, strict=True)
    )
    if not has_shape or not array.size:
        expected = ", ".join("n" if length is None else str(length) for length in shape)
        raise InputError(f"{name}: the shape is {array.shape}; expected ({expected}), not empty")
    if np.isinf(array).any() or (np.isnan(array).any() and not gaps):
        place = tuple(int(index[0]) for index in np.nonzero(~np.isfinite(array)))
        raise InputError(f"{name}: value {array[place]} at {place}; give finite numbers{' or NaN' if gaps else ''}")
    if np.isnan(array).all():
        raise InputError(f"{name}: every value is NaN, so there is nothing to draw; leave it out")
    return array


def check_series(
    what: str,
    series: Mapping[str, ArrayLike],
    *,
    shape: tuple[int | None, ...] = (None,),
    gaps: bool = True,
    same: bool = False,
) -> dict[str, Numbers]:
    """Check named series, of equal length if `same`; at most as many as there are colours."""
    if not isinstance(series, Mapping) or not series:
        raise InputError(f"{what}: expected at least one named series, as a mapping from names to arrays")
    if len(series) > len(MARKERS):
        raise InputError(
            f"{what}: {len(series)} series came; at most {len(MARKERS)} can be distinguished: leave some out"
        )
    arrays = {
        name: check_numbers(f"{what} of {name!r}", values, shape=shape, gaps=gaps) for name, values in series.items()
    }
    lengths = {name: array.shape[-1] for name, array in arrays.items()}
    if same and len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise InputError(f"{what}: the lengths differ: {listed}; give all of them one length")
    return arrays


def check_length(name: str, values: Sequence[Any] | NDArray[Any], length: int, other: str) -> None:
    """Refuse two sequences of different lengths that belong together."""
    if len(values) != length:
        raise InputError(f"{name}: {len(values)} came for {length} {other}; give one for each")


def check_layers(name: str, layers: Sequence[int], count: int) -> tuple[int, ...]:
    """Refuse layers that do not exist."""
    missing = [layer for layer in layers if not 0 <= layer < count]
    if missing:
        raise InputError(f"{name}: layer {missing[0]} is not there; the layers are 0 to {count - 1}")
    return tuple(int(layer) for layer in layers)
