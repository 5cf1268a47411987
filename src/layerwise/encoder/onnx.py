"""Layers by ONNX Runtime, for CPUs: the same numbers in less time.

Everything from tokens to pooled layers is exported as one graph (only the blocks below the highest layer are in it),
checked against torch on a few tokens, and cached on disk, so that it is exported once for each model.
"""

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor, nn

from layerwise.digests import file_sha256, text_digest
from layerwise.encoder.taps import probe_inputs
from layerwise.errors import ModelError
from layerwise.extras import require
from layerwise.files import atomic_file
from layerwise.muted import quiet
from layerwise.places import default_cache_folder

Read = Callable[[Tensor, Tensor, Sequence[int], Sequence[str]], Tensor]
log = logging.getLogger(__name__)
_REMEDY = "free some space, or set LAYERWISE_CACHE to another folder"
_OPSET = 17
_TOLERANCE = 1e-4  # of the largest number
_CHECKED_LENGTH = 200  # beyond ModernBERT's window and MPNet's last distance bucket


def graphs_folder() -> Path:
    """The folder of exported graphs."""
    return default_cache_folder() / "onnx"


class OnnxReader:
    """Reads layers like the torch reader it was made from. One graph for each choice of layers and poolings."""

    def __init__(self, model: nn.Module, read: Read, fingerprint: Callable[[], str], *, max_length: int) -> None:
        require("onnx", "the ONNX backend", "onnx", "onnxruntime")
        self._max_length = max_length
        self._model = model
        self._read = read
        self._fingerprint = fingerprint
        self._sessions: dict[tuple[tuple[int, ...], tuple[str, ...], int], Any] = {}

    def read(self, tokens: Tensor, mask: Tensor, layers: Sequence[int], poolings: Sequence[str]) -> Tensor:
        """Views (batch, poolings, layers, width)."""
        # torch counts every change of a tensor in place, so that a model that was trained further is exported again
        state = sum(parameter._version for parameter in self._model.parameters())
        key = (tuple(layers), tuple(poolings), state)
        if key not in self._sessions:
            self._sessions = {old: session for old, session in self._sessions.items() if old[2] == state}
            self._sessions[key] = self._session(tuple(layers), tuple(poolings))
        return _run(self._sessions[key], tokens, mask)

    def _session(self, layers: tuple[int, ...], poolings: tuple[str, ...]) -> Any:
        key = text_digest([self._fingerprint(), repr(layers), repr(poolings), str(_OPSET), torch.__version__])
        path = graphs_folder() / f"{key[:32]}.onnx"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(path.with_suffix(".lock")):  # of several processes, one exports
                session = _open(path) if path.is_file() else None
                if session is None:
                    self._export(path, layers, poolings)
                    session = _open(path)
        except OSError as error:
            raise ModelError(f"{path.parent}: cannot be used: {error.strerror or error}; {_REMEDY}") from error
        self._check(session, layers, poolings)
        return session

    def _export(self, path: Path, layers: tuple[int, ...], poolings: tuple[str, ...]) -> None:
        log.info("Exporting %s to ONNX, once", type(self._model).__name__)
        graph = _Graph(self._model, lambda tokens, mask: self._read(tokens, mask, layers, poolings)).eval()
        probe = probe_inputs(self._model)
        axes = {"input_ids": {0: "batch", 1: "tokens"}, "attention_mask": {0: "batch", 1: "tokens"}}
        with atomic_file(path, remedy=_REMEDY, error=ModelError) as building, warnings.catch_warnings(), quiet():
            warnings.simplefilter("ignore")  # about its deprecation and about traced sizes, which are checked
            try:
                with torch.no_grad():
                    torch.onnx.export(
                        graph,
                        (probe["input_ids"], probe["attention_mask"]),
                        os.fspath(building),
                        input_names=list(axes),
                        output_names=["views"],
                        dynamic_axes=axes | {"views": {0: "batch"}},
                        opset_version=_OPSET,
                        dynamo=False,
                    )
            except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
                reason = str(error).strip().splitlines()[0]
                raise ModelError(
                    f"This encoder cannot be exported to ONNX ({reason}); use the torch backend"
                ) from error
            digest = file_sha256(building)
        _checksum_file(path).write_text(digest)

    def _check(self, session: Any, layers: tuple[int, ...], poolings: tuple[str, ...]) -> None:
        """Compare with torch on shapes that were not traced: more sentences, and longer ones."""
        length = min(self._max_length, _CHECKED_LENGTH)
        tokens = probe_inputs(self._model)["input_ids"][:1].repeat(3, length)[:, :length]
        mask = torch.ones_like(tokens)
        mask[1, length // 2 :] = 0
        with torch.inference_mode():
            expected = self._read(tokens, mask, layers, poolings)
        difference = (_run(session, tokens, mask) - expected).abs().max().item()
        if not difference <= _TOLERANCE * max(1.0, expected.abs().max().item()):
            raise ModelError(
                f"The ONNX graph of this encoder differs from torch by {difference:.1e}; use the torch backend"
            )


class _Graph(nn.Module):
    """A module to export: the model's parameters with the function that reads its layers."""

    def __init__(self, model: nn.Module, run: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.model = model
        self._run = run

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self._run(input_ids, attention_mask)


def _run(session: Any, tokens: Tensor, mask: Tensor) -> Tensor:
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail, RuntimeException

    try:
        (views,) = session.run(None, {"input_ids": tokens.numpy(), "attention_mask": mask.numpy()})
    except (Fail, RuntimeException) as error:
        if "alloc" in str(error).lower():  # `stream` halves its budget on this
            raise MemoryError(str(error)) from error
        raise ModelError(f"ONNX Runtime failed: {str(error).splitlines()[0]}; use the torch backend") from error
    return torch.from_numpy(views)


def _checksum_file(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _open(path: Path) -> Any:
    """A session, or None where the file is damaged."""
    import onnxruntime

    checksum = _checksum_file(path)
    if not checksum.is_file() or checksum.read_text() != file_sha256(path):
        log.warning("%s: the cached graph is damaged and is exported again: its checksum differs", path)
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Spinning threads would take the cores from the tokenizer and from torch.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
