"""NPY arrays that are read in slices of rows: memory-mapped from a disk, by ranges of bytes from a store."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.stores.paths import Place, StorePath

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def open_array(place: Place) -> Any:
    """The array of an NPY file, of which only slices `array[start:end]` and `np.asarray` read numbers.

    A file that holds no array is a ValueError.
    """
    if isinstance(place, StorePath):
        return _StoredArray(place)
    return np.load(place, mmap_mode="r", allow_pickle=False)


class _StoredArray:
    def __init__(self, place: StorePath) -> None:
        self._place = place
        with place.open() as file:
            version = np.lib.format.read_magic(file)
            if version not in _HEADERS:
                raise ValueError(f"its NPY version {version} is unknown")
            self.shape, in_columns, self.dtype = _HEADERS[version](file)
            self._first = file.tell()
        if in_columns or not self.shape or self.dtype.hasobject:
            raise ValueError("it is not an array of numbers in rows")

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, end, _ = rows.indices(len(self))
        size = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        with self._place.open() as file:
            file.seek(self._first + start * size)
            data = file.read((end - start) * size)
        if len(data) != (end - start) * size:
            raise ValueError("it ends before its last row")
        return np.frombuffer(data, self.dtype).reshape(end - start, *self.shape[1:])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype=dtype)
