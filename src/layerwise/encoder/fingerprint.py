"""What makes two encoders the same: hashes of weights, architecture and tokenizer."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

# Said of where a model came from or how it is run, not of what it computes.
_IRRELEVANT = {
    "_name_or_path",
    "transformers_version",
    "dtype",
    "torch_dtype",
    "output_hidden_states",
    "use_cache",
}


def model_fingerprint(model: nn.Module) -> str:
    """A hash of a model's class, settings and weights as they are now, trained or not."""
    digest = hashlib.sha256(type(model).__name__.encode())
    config = model.config.to_dict()  # type: ignore[union-attr, operator]
    settings = {key: value for key, value in config.items() if key not in _IRRELEVANT}
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """A hash of everything that decides how a text is cut into tokens."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        settings = {key: value for key, value in tokenizer.init_kwargs.items() if not key.endswith(("_file", "_path"))}
        rules = json.dumps([type(tokenizer).__name__, settings, tokenizer.get_vocab()], sort_keys=True, default=str)
    else:
        plain = Tokenizer.from_str(backend.to_str())  # every call leaves its truncation and padding in the backend
        plain.no_truncation()
        plain.no_padding()
        rules = plain.to_str()
    return hashlib.sha256(f"{tokenizer.truncation_side} {rules}".encode()).hexdigest()


def text_fingerprint(texts: Sequence[str]) -> str:
    """A hash of texts in their order; lengths keep ("ab", "c") apart from ("a", "bc")."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
