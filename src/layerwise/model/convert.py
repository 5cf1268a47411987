"""Embeddings in the forms that callers of sentence-transformers ask for."""

from typing import Any, Literal

import torch

from layerwise.encoder.stream import Array

Precision = Literal["float32", "int8", "uint8", "binary", "ubinary"]


def converted(found: Array, single: bool, precision: Precision, tensor: bool, device: torch.device) -> Any:
    """Embeddings (sentences, width), quantised, as a tensor, or only the first, as asked."""
    result: Any = found
    if precision != "float32":
        from sentence_transformers.util.quantization import quantize_embeddings

        result = quantize_embeddings(found, precision=precision)
    result = result[0] if single else result
    return torch.from_numpy(result).to(device) if tensor else result
