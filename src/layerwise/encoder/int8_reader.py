"""Layers in int8 by ONNX Runtime, for CPUs: each graph is made once of the one in float, and compared with it."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock
from torch import nn

from layerwise.digests import file_sha256
from layerwise.encoder.arrays import Array
from layerwise.encoder.int8 import quantise
from layerwise.encoder.int8_loss import Int8Loss, measure_loss, stored_loss
from layerwise.encoder.int8_plan import Int8Plan, load_plan
from layerwise.encoder.int8_steps import weight_steps
from layerwise.encoder.onnx import OnnxReader, Read
from layerwise.encoder.onnx_sessions import (
    REMEDY,
    checksum_file,
    graphs_folder,
    open_session,
    run_session,
    start_session,
    unusable,
)
from layerwise.encoder.streaming import Forward
from layerwise.errors import ModelError
from layerwise.files import atomic_file, write_json

EncodeBy = Callable[[Forward, Sequence[str]], Array]
log = logging.getLogger(__name__)
_LEAST_COSINE = 0.9  # of int8 views with those in float


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
                path = graphs_folder() / f"{fingerprint[:32]}-{weight_steps()}.int8.json"
                with FileLock(path.with_suffix(".lock")):  # of several processes, one chooses
                    self._plans = {fingerprint: load_plan(path, self._model, self._encode_torch)}
            except OSError as error:
                raise unusable(error) from error
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
            raise unusable(error) from error

    def log_loss(self, layers: Sequence[int], poolings: Sequence[str]) -> None:
        """Log the loss of the graph that made cached views, if it is in the cache."""
        path = self._int8_path(tuple(layers), tuple(poolings))
        with suppress(OSError):  # the graph is not there
            loss = stored_loss(path.with_suffix(".json"), checksum_file(path).read_text())
            if loss is not None:
                self._log(path, loss)

    def _int8_path(self, layers: tuple[int, ...], poolings: tuple[str, ...]) -> Path:
        source = self._path(layers, poolings)
        return source.with_name(f"{source.stem}-int8-{self.plan.digest[:16]}.onnx")

    def _measured(self, path: Path) -> Any:
        """The session of a graph in the cache, whose loss is logged; None if the graph or its loss must be made."""
        session = open_session(path, int8=True) if path.is_file() else None
        if session is None:
            return None
        loss = stored_loss(path.with_suffix(".json"), checksum_file(path).read_text())
        if loss is None:
            log.warning("%s: the cached int8 graph is made again, once: its loss against float is not stored", path)
            return None
        self._log(path, loss)
        return session

    def _quantised(self, source: Path, path: Path, in_float: Any) -> Any:
        """Make the graph; its loss is logged and stored beside it."""
        with atomic_file(path, remedy=REMEDY, error=ModelError) as building:
            quantise(source, building, self.plan)
            session = start_session(building, int8=True)
            loss = measure_loss(*(partial(self._encode_graph, graph) for graph in (in_float, session)))
            if not min(loss.cosine) >= _LEAST_COSINE:
                raise ModelError(
                    f"int8 changes this encoder too much (cosine {min(loss.cosine):.2f} with float); use float"
                )
            digest = file_sha256(building)
            write_json(path.with_suffix(".json"), {"sha256": digest, **asdict(loss)}, indent=1)
        checksum_file(path).write_text(digest)
        self._log(path, loss)
        return session

    def _log(self, path: Path, loss: Int8Loss) -> None:
        if path not in self._logged:
            self._logged.add(path)
            log.info("%s in int8: %s", type(self._model).__name__, loss)

    def _encode_graph(self, session: Any, texts: Sequence[str]) -> Array:
        """By the graph's first pooling: (texts, layers, width)."""
        return self._encode_by(partial(run_session, session), texts)[:, 0]
