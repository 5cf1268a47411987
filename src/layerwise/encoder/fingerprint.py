"""Identifies encoders by hashes of weights, architecture and tokenizer."""

import hashlib
import json
from typing import Any

from tokenizers import Tokenizer
from torch import nn

from layerwise.digests import tensor_digest

# Settings about a model's origin or how it is run, which do not affect its output.
_IRRELEVANT = {
    "_name_or_path",
    "transformers_version",
    "dtype",
    "torch_dtype",
    "output_hidden_states",
    "use_cache",
}


def model_fingerprint(model: nn.Module) -> str:
    """Return a hash of a model's class, config and current weights."""
    config = model.config.to_dict()  # type: ignore[union-attr, operator]
    settings = {key: value for key, value in config.items() if key not in _IRRELEVANT}
    label = type(model).__name__ + json.dumps(settings, sort_keys=True, default=str)
    return tensor_digest(model.state_dict(), label=label)


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Return a hash of everything that determines the tokenisation of a text."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        settings = {key: value for key, value in tokenizer.init_kwargs.items() if not key.endswith(("_file", "_path"))}
        rules = json.dumps([type(tokenizer).__name__, settings, tokenizer.get_vocab()], sort_keys=True, default=str)
    else:
        plain = Tokenizer.from_str(backend.to_str())  # the backend stores the truncation and padding of the last call
        plain.no_truncation()
        plain.no_padding()
        rules = plain.to_str()
    return hashlib.sha256(f"{tokenizer.truncation_side} {rules}".encode()).hexdigest()
