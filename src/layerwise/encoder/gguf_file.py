"""Read a GGUF file in one pass: its facts, and its weights of Q4_1, Q8_0 and float32 blocks, dequantised.

transformers' own reader needs two more packages, parses the vocabulary three times and takes half a minute.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import ModelError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_FLOAT32, _Q4_1, _Q8_0 = 0, 3, 8
_BLOCK = 32  # weights that share a scale
_BLOCKS = {
    _FLOAT32: np.dtype([("weights", "<f4", _BLOCK)]),
    _Q4_1: np.dtype([("scale", "<f2"), ("least", "<f2"), ("pairs", "u1", _BLOCK // 2)]),
    _Q8_0: np.dtype([("scale", "<f2"), ("weights", "i1", _BLOCK)]),
}
_ALIGNMENT = 32


class GgufFile:
    """`facts` by name; `weights()` yields names and float32 arrays."""

    def __init__(self, path: Path) -> None:
        self._data, self._at = path.read_bytes(), 0
        if self._data[:4] != b"GGUF":
            raise ModelError(f"{path} is not a GGUF file")
        _, _, n_tensors, n_facts = struct.unpack_from("<IIQQ", self._data)
        self._at = struct.calcsize("<IIQQ")
        self.facts: dict[str, Any] = {self._string(): self._value(self._take("I")) for _ in range(n_facts)}
        self._tensors = [self._tensor() for _ in range(n_tensors)]
        self._start = -(-self._at // _ALIGNMENT) * _ALIGNMENT

    def weights(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Each weight with its name."""
        for name, shape, kind, offset in self._tensors:
            if kind not in _BLOCKS:
                raise ModelError(f"{name} is quantised by GGML type {kind}; readable are {sorted(_BLOCKS)}")
            count = int(np.prod(shape)) // _BLOCK
            blocks = np.frombuffer(self._data, _BLOCKS[kind], count, self._start + offset)
            yield name, _dequantised(blocks, kind).reshape(shape)

    def _take(self, form: str) -> Any:
        (value,) = struct.unpack_from("<" + form, self._data, self._at)
        self._at += struct.calcsize("<" + form)
        return value

    def _string(self) -> str:
        length = self._take("Q")
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            inner, length = self._take("I"), self._take("Q")
            return [self._value(inner) for _ in range(length)]
        return self._take(_SCALARS[kind])

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, n_dimensions = self._string(), self._take("I")
        shape = tuple(self._take("Q") for _ in range(n_dimensions))[::-1]  # the innermost comes first
        return name, shape, self._take("I"), self._take("Q")


def _dequantised(blocks: NDArray[Any], kind: int) -> NDArray[np.float32]:
    if kind == _FLOAT32:
        return np.asarray(blocks["weights"])
    scale = blocks["scale"].astype(np.float32)[:, None]
    if kind == _Q8_0:
        return scale * blocks["weights"].astype(np.float32)
    pairs = blocks["pairs"]
    weights = np.concatenate([pairs & 15, pairs >> 4], axis=1).astype(np.float32)
    return scale * weights + blocks["least"].astype(np.float32)[:, None]
