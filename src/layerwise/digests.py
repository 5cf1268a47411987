"""Digests: what two runs must have in common for their numbers to be the same."""

import json
from collections.abc import Iterable, Mapping
from hashlib import file_digest, sha256
from typing import TYPE_CHECKING, Any

from layerwise.stores import Place

if TYPE_CHECKING:
    from torch import Tensor


def json_digest(value: Any) -> str:
    """Hash a JSON-serialisable value; other objects are converted by `str`."""
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def text_digest(texts: Iterable[str]) -> str:
    """Hash texts in order, with their lengths, so that ("ab", "c") and ("a", "bc") differ."""
    digest = sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def tensor_digest(tensors: Mapping[str, "Tensor"], *, label: str = "") -> str:
    """Hash named tensors (a state dict): names, types, shapes and bytes; `label` describes the model."""
    import torch

    digest = sha256(label.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def file_sha256(path: Place) -> str:
    """Hash the content of a file or object."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
