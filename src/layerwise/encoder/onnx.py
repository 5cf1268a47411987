"""Layers by ONNX Runtime, for CPUs: the same numbers in less time, or int8 numbers in still less.

Everything from tokens to pooled layers is exported as one graph (only the blocks below the highest layer are in it),
checked against torch on a few tokens, and cached on disk, so that it is exported once for each model. Attention becomes
one operator where that gives the same numbers (onnx_attention.py).
"""

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from threading import Lock, RLock
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor, nn

from layerwise.digests import file_sha256, text_digest
from layerwise.encoder.arrays import Array
from layerwise.encoder.int8 import Int8Loss, Int8Plan, load_plan, measure_loss, quantise, stored_loss
from layerwise.encoder.onnx_attention import fuse_attention
from layerwise.encoder.streaming import Forward
from layerwise.encoder.taps import probe_inputs
from layerwise.errors import ModelError
from layerwise.extras import require
from layerwise.files import atomic_file, write_json
from layerwise.muted import quiet
from layerwise.places import default_cache_folder
from layerwise.threads import cores_here

Read = Callable[[Tensor, Tensor, Sequence[int], Sequence[str]], Tensor]
EncodeBy = Callable[[Forward, Sequence[str]], Array]
log = logging.getLogger(__name__)
_REMEDY = "free some space, or set LAYERWISE_CACHE to another folder"
_OPSET = 17
_FORMAT = 2  # of graphs; those of another are not read
_TOLERANCE = 1e-4  # of the largest number
_LEAST_COSINE = 0.9  # of int8 views with those in float
_CHECKED_LENGTH = 200  # beyond ModernBERT's window and MPNet's last distance bucket
_exporting = Lock()  # torch exports one model at a time


def graphs_folder() -> Path:
    """The folder of exported graphs."""
    return default_cache_folder() / "onnx"


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
        return _run(self._sessions[key], tokens, mask)

    def _path(self, layers: tuple[int, ...], poolings: tuple[str, ...]) -> Path:
        exported_by = f"{_OPSET} {_FORMAT}"
        key = text_digest([self._fingerprint(), repr(layers), repr(poolings), exported_by, torch.__version__])
        return graphs_folder() / f"{key[:32]}.onnx"

    def _session(self, layers: tuple[int, ...], poolings: tuple[str, ...]) -> Any:
        path = self._path(layers, poolings)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(path.with_suffix(".lock")):  # of several processes, one exports
                session = _open(path) if path.is_file() else None
                if session is None:
                    self._export(path, layers, poolings)
                    session = _open(path)
        except OSError as error:
            raise _unusable(error) from error
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
        _checksum_file(path).write_text(digest)

    def _fuse(self, path: Path, layers: tuple[int, ...], poolings: tuple[str, ...]) -> None:
        """Fuse the attention of a graph, unless the result differs from torch: its mask may not be of padding alone."""
        import onnx

        model, heads = onnx.load(path), getattr(self._model.config, "num_attention_heads", None)
        if not isinstance(heads, int) or not fuse_attention(model, heads):
            return
        fused = model.SerializeToString()
        try:
            self._check(_start(fused, int8=False), layers, poolings)
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
        difference = (_run(session, tokens, mask) - expected).abs().max().item()
        if not difference <= _TOLERANCE * max(1.0, expected.abs().max().item()):
            raise ModelError(
                f"The ONNX graph of this encoder differs from torch by {difference:.1e}; use the torch backend"
            )


class Int8Reader(OnnxReader):
    """Reads layers by int8 graphs, each made once of the float graph and compared with it.

    Args:
        model: As for `OnnxReader`, like `read`, `fingerprint` and `max_length`.
        read: By torch.
        fingerprint: Of the model's weights.
        max_length: Of a text, in tokens.
        depth: The number of the last layer.
        encode_by: Runs a function of tokens and mask over texts.
    """

    def __init__(
        self,
        model: nn.Module,
        read: Read,
        fingerprint: Callable[[], str],
        *,
        max_length: int,
        depth: int,
        encode_by: EncodeBy,
    ) -> None:
        super().__init__(model, read, fingerprint, max_length=max_length)
        self._depth, self._encode_by = depth, encode_by
        self._plans: dict[str, Int8Plan] = {}
        self._logged: set[Path] = set()  # graphs, each of which is loaded once for each number of cores

    @property
    def plan(self) -> Int8Plan:
        """Which linear layers are quantised how; chosen once for the weights as they are now."""
        fingerprint = self._fingerprint()
        if fingerprint not in self._plans:
            try:
                graphs_folder().mkdir(parents=True, exist_ok=True)
                path = graphs_folder() / f"{fingerprint[:32]}.int8.json"
                with FileLock(path.with_suffix(".lock")):  # of several processes, one chooses
                    self._plans = {fingerprint: load_plan(path, self._model, self._encode_torch)}
            except OSError as error:
                raise _unusable(error) from error
        return self._plans[fingerprint]

    def _encode_torch(self, texts: Sequence[str]) -> Array:
        """Every layer's mean: (texts, layers, width)."""
        layers = range(self._depth + 1)
        return self._encode_by(lambda tokens, mask: self._read(tokens, mask, layers, ["mean"]), texts)[:, 0]

    def _session(self, layers: tuple[int, ...], poolings: tuple[str, ...]) -> Any:
        path = self._int8_path(layers, poolings)
        session = self._measured(path)
        if session is not None:
            return session
        in_float = super()._session(layers, poolings)
        try:
            with FileLock(path.with_suffix(".lock")):
                return self._measured(path) or self._quantised(self._path(layers, poolings), path, in_float)
        except OSError as error:
            raise _unusable(error) from error

    def log_loss(self, layers: Sequence[int], poolings: Sequence[str]) -> None:
        """Log the loss of the graph that made cached views, if it is in the cache."""
        path = self._int8_path(tuple(layers), tuple(poolings))
        with suppress(OSError):  # the graph is not there
            loss = stored_loss(path.with_suffix(".json"), _checksum_file(path).read_text())
            if loss is not None:
                self._log(path, loss)

    def _int8_path(self, layers: tuple[int, ...], poolings: tuple[str, ...]) -> Path:
        source = self._path(layers, poolings)
        return source.with_name(f"{source.stem}-int8-{self.plan.digest[:16]}.onnx")

    def _measured(self, path: Path) -> Any:
        """The session of a graph in the cache, whose loss is logged; None if the graph or its loss must be made."""
        session = _open(path, int8=True) if path.is_file() else None
        if session is None:
            return None
        loss = stored_loss(path.with_suffix(".json"), _checksum_file(path).read_text())
        if loss is None:
            log.warning("%s: the cached int8 graph is made again, once: its loss against float is not stored", path)
            return None
        self._log(path, loss)
        return session

    def _quantised(self, source: Path, path: Path, in_float: Any) -> Any:
        """Make the graph; its loss is logged and stored beside it."""
        with atomic_file(path, remedy=_REMEDY, error=ModelError) as building:
            quantise(source, building, self.plan)
            session = _start(building, int8=True)
            loss = measure_loss(*(partial(self._encode_graph, graph) for graph in (in_float, session)))
            if not min(loss.cosine) >= _LEAST_COSINE:
                raise ModelError(
                    f"int8 changes this encoder too much (cosine {min(loss.cosine):.2f} with float); use float"
                )
            digest = file_sha256(building)
            write_json(path.with_suffix(".json"), {"sha256": digest, **asdict(loss)}, indent=1)
        _checksum_file(path).write_text(digest)
        self._log(path, loss)
        return session

    def _log(self, path: Path, loss: Int8Loss) -> None:
        if path not in self._logged:
            self._logged.add(path)
            log.info("%s in int8: %s", type(self._model).__name__, loss)

    def _encode_graph(self, session: Any, texts: Sequence[str]) -> Array:
        """By the graph's first pooling: (texts, layers, width)."""
        return self._encode_by(partial(_run, session), texts)[:, 0]


def _unusable(error: OSError) -> ModelError:
    return ModelError(f"{graphs_folder()}: cannot be used: {error.strerror or error}; {_REMEDY}")


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


def _open(path: Path, *, int8: bool = False) -> Any:
    """A session, or None where the file is damaged."""
    checksum = _checksum_file(path)
    if not checksum.is_file() or checksum.read_text() != file_sha256(path):
        log.warning("%s: the cached graph is damaged and is exported again: its checksum differs", path)
        return None
    return _start(path, int8=int8)


def _start(graph: Path | bytes, *, int8: bool) -> Any:
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
