"""Digests: what two runs must have in common for their numbers to be the same."""

import json
from collections.abc import Iterable, Mapping
from hashlib import file_digest, sha256
from typing import TYPE_CHECKING, Any

from layerwise.stores import Place

if TYPE_CHECKING:
    from torch import Tensor


def json_digest(value: Any) -> str:
    """Of anything that JSON can write; what it cannot is taken by its `str`."""
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def text_digest(texts: Iterable[str]) -> str:
    """Of texts in their order; lengths tell ("ab", "c") from ("a", "bc")."""
    digest = sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def tensor_digest(tensors: Mapping[str, "Tensor"], *, label: str = "") -> str:
    """Of named tensors (a state dict): names, types, shapes and bytes; `label` says what they are the weights of."""
    import torch

    digest = sha256(label.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def file_sha256(path: Place) -> str:
    """Of the content of a file or object."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
