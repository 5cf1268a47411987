"""Layers by ONNX Runtime, for CPUs: the same numbers in less time.

Everything from tokens to pooled layers is exported as one graph (only the blocks below the highest layer are in it),
checked against torch on a few tokens, and cached on disk, so that it is exported once for each model. Attention becomes
one operator where that gives the same numbers (onnx_attention.py).
"""

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock, RLock
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor, nn

from layerwise.digests import file_sha256, text_digest
from layerwise.encoder.onnx_attention import fuse_attention
from layerwise.encoder.onnx_sessions import (
    REMEDY,
    checksum_file,
    graphs_folder,
    open_session,
    run_session,
    start_session,
    unusable,
)
from layerwise.encoder.taps import probe_inputs
from layerwise.errors import ModelError
from layerwise.extras import require
from layerwise.files import atomic_file
from layerwise.muted import quiet
from layerwise.threads import cores_here

Read = Callable[[Tensor, Tensor, Sequence[int], Sequence[str]], Tensor]
log = logging.getLogger(__name__)
_OPSET = 17
_FORMAT = 2  # of graphs; those of another are not read
_TOLERANCE = 1e-4  # of the largest number
_CHECKED_LENGTH = 200  # beyond ModernBERT's window and MPNet's last distance bucket
_exporting = Lock()  # torch exports one model at a time


class OnnxReader:
    """Reads layers like the torch reader it was made from. One graph for each choice of layers and poolings.

    A graph is loaded once for each number of cores that it is run by (`within_cores`).
    """

    def __init__(self, model: nn.Module, read: Read, fingerprint: Callable[[], str], *, max_length: int) -> None:
        require("onnx", "the ONNX backend", "onnx", "onnxruntime")
        self._max_length = max_length
        self._model = model
        owners = (module._parameters for module in model.modules())  # found once: it takes half a millisecond
        self._parameters = [(owner, name) for owner in owners for name, one in owner.items() if one is not None]
        self._read = read
        self._fingerprint = fingerprint
        self._loading = RLock()
        self._sessions: dict[tuple[int, tuple[int, ...], tuple[str, ...], int], Any] = {}

    def read(self, tokens: Tensor, mask: Tensor, layers: Sequence[int], poolings: Sequence[str]) -> Tensor:
        """Views (batch, poolings, layers, width)."""
        # torch counts every change of a tensor in place, so that a model that was trained further is exported again
        state = sum([owner[name]._version for owner, name in self._parameters])  # type: ignore[misc, union-attr]
        key = (state, tuple(layers), tuple(poolings), cores_here())
        if key not in self._sessions:
            with self._loading:  # of several threads, one loads
                self._sessions = {old: session for old, session in self._sessions.items() if old[0] == state}
                if key not in self._sessions:
                    self._sessions[key] = self._session(tuple(layers), tuple(poolings))
        return run_session(self._sessions[key], tokens, mask)

    def _path(self, layers: tuple[int, ...], poolings: tuple[str, ...]) -> Path:
        exported_by = f"{_OPSET} {_FORMAT}"
        key = text_digest([self._fingerprint(), repr(layers), repr(poolings), exported_by, torch.__version__])
        return graphs_folder() / f"{key[:32]}.onnx"

    def _session(self, layers: tuple[int, ...], poolings: tuple[str, ...]) -> Any:
        path = self._path(layers, poolings)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(path.with_suffix(".lock")):  # of several processes, one exports
                session = open_session(path) if path.is_file() else None
                if session is None:
                    self._export(path, layers, poolings)
                    session = open_session(path)
        except OSError as error:
            raise unusable(error) from error
        self._check(session, layers, poolings)
        return session

    def _export(self, path: Path, layers: tuple[int, ...], poolings: tuple[str, ...]) -> None:
        log.info("Exporting %s to ONNX, once", type(self._model).__name__)
        graph = _Graph(self._model, lambda tokens, mask: self._read(tokens, mask, layers, poolings)).eval()
        probe = probe_inputs(self._model)
        axes = {"input_ids": {0: "batch", 1: "tokens"}, "attention_mask": {0: "batch", 1: "tokens"}}
        with atomic_file(path, remedy=REMEDY, error=ModelError) as building, warnings.catch_warnings(), quiet():
            warnings.simplefilter("ignore")  # about its deprecation and about traced sizes, which are checked
            try:
                with _exporting, torch.no_grad():
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
            self._fuse(building, layers, poolings)
            digest = file_sha256(building)
        checksum_file(path).write_text(digest)

    def _fuse(self, path: Path, layers: tuple[int, ...], poolings: tuple[str, ...]) -> None:
        """Fuse the attention of a graph, unless the result differs from torch: its mask may not be of padding alone."""
        import onnx

        model, heads = onnx.load(path), getattr(self._model.config, "num_attention_heads", None)
        if not isinstance(heads, int) or not fuse_attention(model, heads):
            return
        fused = model.SerializeToString()
        try:
            self._check(start_session(fused, int8=False), layers, poolings)
        except ModelError:
            log.info("The attention of %s is not fused, as its numbers would differ", type(self._model).__name__)
        else:
            path.write_bytes(fused)

    def _check(self, session: Any, layers: tuple[int, ...], poolings: tuple[str, ...]) -> None:
        """Compare with torch on shapes that were not traced: more sentences, and longer ones."""
        length = min(self._max_length, _CHECKED_LENGTH)
        tokens = probe_inputs(self._model)["input_ids"][:1].repeat(3, length)[:, :length]
        mask = torch.ones_like(tokens)
        mask[1, length // 2 :] = 0
        with torch.inference_mode():
            expected = self._read(tokens, mask, layers, poolings)
        difference = (run_session(session, tokens, mask) - expected).abs().max().item()
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
