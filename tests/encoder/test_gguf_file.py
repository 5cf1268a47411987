"""GGUF files: facts, and weights whose blocks are worked out by hand."""

import struct

import numpy as np
import pytest

from layerwise.encoder.gguf_file import GgufFile
from layerwise.errors import ModelError


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def write(path, kind: int, block: bytes):
    """One fact, a list, and one weight of 32."""
    facts = text("model") + struct.pack("<I", 8) + text("llama")
    facts += text("sizes") + struct.pack("<IIQ2I", 9, 4, 2, 7, 8)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 2) + facts
    head += text("w") + struct.pack("<IQQIQ", 2, 16, 2, kind, 0)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + block)
    return GgufFile(path)


@pytest.mark.parametrize(
    ("kind", "block", "expected"),
    [
        (0, np.arange(32, dtype="<f4").tobytes(), np.arange(32)),
        (8, struct.pack("<e32b", 0.5, *range(-16, 16)), np.arange(-16, 16) / 2),
        (3, struct.pack("<ee16B", 2, -1, *(low | (15 - low) << 4 for low in range(16))), None),
    ],
)
def test_facts_and_weights(tmp_path, kind, block, expected):
    file = write(tmp_path / "model.gguf", kind, block)
    assert file.facts == {"model": "llama", "sizes": [7, 8]}
    ((name, weights),) = file.weights()
    if expected is None:
        expected = [*(2 * low - 1 for low in range(16)), *(2 * (15 - low) - 1 for low in range(16))]
    assert name == "w"
    assert weights.shape == (2, 16)
    assert weights.ravel().tolist() == list(expected)


def test_other_blocks_and_other_files_are_refused(tmp_path):
    with pytest.raises(ModelError, match="w is quantised by GGML type 14"):
        list(write(tmp_path / "model.gguf", 14, b"").weights())
    (tmp_path / "other").write_bytes(b"PK" * 20)
    with pytest.raises(ModelError, match="other is not a GGUF file"):
        GgufFile(tmp_path / "other")
