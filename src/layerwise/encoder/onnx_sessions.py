"""Graphs of ONNX Runtime in the cache folder: their files and checksums, and the sessions that run them."""

import logging
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from layerwise.digests import file_sha256
from layerwise.errors import ModelError
from layerwise.places import default_cache_folder
from layerwise.threads import cores_here

log = logging.getLogger(__name__)
REMEDY = "free some space, or set LAYERWISE_CACHE to another folder"


def graphs_folder() -> Path:
    """The folder of exported graphs."""
    return default_cache_folder() / "onnx"


def unusable(error: OSError) -> ModelError:
    """Return the error for a cache folder that cannot be used."""
    return ModelError(f"{graphs_folder()}: cannot be used: {error.strerror or error}; {REMEDY}")


def run_session(session: Any, tokens: Tensor, mask: Tensor) -> Tensor:
    """Run a graph: views (batch, poolings, layers, width)."""
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail, RuntimeException

    try:
        (views,) = session.run(None, {"input_ids": tokens.numpy(), "attention_mask": mask.numpy()})
    except (Fail, RuntimeException) as error:
        if "alloc" in str(error).lower():  # `stream` halves its budget on this
            raise MemoryError(str(error)) from error
        raise ModelError(f"ONNX Runtime failed: {str(error).splitlines()[0]}; use the torch backend") from error
    return torch.from_numpy(views)


def checksum_file(path: Path) -> Path:
    """Return the file of a graph's checksum."""
    return path.with_suffix(".sha256")


def open_session(path: Path, *, int8: bool = False) -> Any:
    """Return the session of a graph in the cache, or None if its file is damaged."""
    checksum = checksum_file(path)
    if not checksum.is_file() or checksum.read_text() != file_sha256(path):
        log.warning("%s: the cached graph is damaged and is exported again: its checksum differs", path)
        return None
    return start_session(path, int8=int8)


def start_session(graph: Path | bytes, *, int8: bool) -> Any:
    """Start a session of a graph, given as its file or its bytes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores_here()
    # Threads spin between the operations of a pass, which makes short texts faster, and not between two passes, where
    # they would take the cores from the tokenizer and from torch.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    if int8:  # GELU by tanh saves about a tenth of the time; what it changes is part of the measured loss
        options.add_session_config_entry("optimization.enable_gelu_approximation", "1")
    # Fused with the addition before it, a layer norm takes longer than both apart, in int8 several times as long.
    return onnxruntime.InferenceSession(
        graph if isinstance(graph, bytes) else os.fspath(graph),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["SkipLayerNormFusion"],
    )
