"""What stands behind a model's mix: by content, to know a result by, and in words, to read beside it."""

import json
from hashlib import sha256
from typing import Any

import numpy as np

from layerwise.mixes import LayerAttention
from layerwise.model.head import AnyHead, FlowHead
from layerwise.model.layer_model import LayerModel
from layerwise.postprocess.fitted_on import ENCODER


def behind_by_content(model: LayerModel) -> dict[str, Any]:
    """What decides an embedding besides the encoder and the mix's text."""
    attention = {"attention": model.mix.trained.digest()[:16]} if isinstance(model.mix, LayerAttention) else {}
    return _heads_by_content(model) | attention


def behind_in_words(model: LayerModel) -> str:
    """Such as "whitening fitted on 50,000 sentences of wiki1m"; nothing where the mix is all there is.

    What was fitted last stands last, so the heads that no record tells of are the first ones.
    """
    fitted = [f"{record.what} fitted on {record}" for record in model.fitted_on if record.what != ENCODER]
    own = model.heads[: len(model.heads) - len(fitted)] if len(fitted) < len(model.heads) else ()
    return ", then ".join([*map(_head_in_words, own), *fitted]) if model.heads else ""


def _head_in_words(head: AnyHead) -> str:
    if isinstance(head, FlowHead):
        return "a flow"
    return f"a linear layer ({head.activation}, {head.in_features} to {head.out_features} numbers)"


def _heads_by_content(model: LayerModel) -> dict[str, Any]:
    if not model.heads:
        return {"normalize": model.normalize}
    digest = sha256()
    for head in model.heads:
        for key, value in sorted(head.state_dict().items()):
            digest.update(f"{key} {tuple(value.shape)}".encode())
            digest.update(np.ascontiguousarray(value.detach().cpu().numpy()).data)
    heads = json.dumps([[type(head).__name__, getattr(head, "activation", "")] for head in model.heads])
    return {"normalize": model.normalize, "heads": f"{heads} {digest.hexdigest()[:16]}"}
