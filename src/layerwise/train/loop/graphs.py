"""CUDA graphs: launch the encoder's forward and backward pass as a whole.

A training step runs hundreds of small kernels, and a fast GPU spends most of the time on launching them one by one.
Captured once per shape and replayed, they take a fraction of it. Dropout stays random: the graph reads the generator's
state at every replay.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from layerwise.objectives import world_size
from layerwise.train.loop.settings import OptimiserSettings
from layerwise.train.loop.student import BaseStudent, Encoded, EncoderPass, dropout_set

log = logging.getLogger(__name__)

STEP = 8  # lengths are padded to a multiple of this, so that there are few shapes
_WARM_UPS = 3
Parts = tuple[str, ...]
Shapes = tuple[torch.Size, ...]
Inputs = tuple[Tensor, ...]


def use_graphs(student: BaseStudent, settings: OptimiserSettings) -> bool:
    """Whether to train with CUDA graphs: on a single GPU, without gradient caching."""
    on_gpu = student.encoder.device.type == "cuda" and world_size() == 1
    return on_gpu and settings.cuda_graphs and not settings.chunk


class GraphedEncode:
    """`BaseStudent.run_pass` by CUDA graphs, for passes with the usual number of rows; others run eagerly.

    Passes of one step have different parts. Each has its own graphs and memory pool, so that activations saved for the
    backward pass are not overwritten by another pass of the same step.

    Args:
        student: The student whose passes are captured.
        rows: The rows of each part in a whole batch.
        bf16: Run under autocast. (The host's autocast caches casts between calls, which a graph cannot.)
    """

    def __init__(self, student: BaseStudent, *, rows: Mapping[str, int], bf16: bool) -> None:
        self.student = student
        self.rows = dict(rows)
        self.bf16 = bf16
        self._graphs: dict[tuple[Parts, Shapes], Any] = {}
        self._pools: dict[Parts, Any] = {}
        self._supported = True

    def padded(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Round up the length of a batch, or of batches by name, while it is on the CPU."""
        if "input_ids" not in batch:
            return {name: self.padded(part) for name, part in batch.items()}
        encoder, length = self.student.encoder, batch["input_ids"].shape[1]
        extra = min(-length % STEP, max(0, encoder.max_length - length))
        if not extra:
            return dict(batch)
        tokens = F.pad(batch["input_ids"], (0, extra), value=int(encoder.tokenizer.pad_token_id or 0))
        return {**batch, "input_ids": tokens, "attention_mask": F.pad(batch["attention_mask"], (0, extra))}

    def __call__(self, encoder_pass: EncoderPass) -> Encoded:
        """Like `BaseStudent.run_pass`."""
        with torch.autocast(encoder_pass.tokens.device.type, enabled=False):
            graph = self._graph(encoder_pass) if self._is_whole(encoder_pass) else None
            if graph is not None:
                return dict(zip(self.student.encoded_names, graph(*encoder_pass.inputs), strict=True))
        return self.student.run_pass(encoder_pass)

    def _is_whole(self, encoder_pass: EncoderPass) -> bool:
        return all(self.rows.get(part) == rows for part, rows in encoder_pass.rows.items())

    def _graph(self, encoder_pass: EncoderPass) -> Any:
        """Return the graph of a pass's shapes, captured on first use; None after a failed capture."""
        key = (tuple(encoder_pass.rows), tuple(tensor.shape for tensor in encoder_pass.inputs))
        if self._supported and key not in self._graphs:
            self._supported = self._capture(key, encoder_pass)
        return self._graphs.get(key) if self._supported else None

    def _capture(self, key: tuple[Parts, Shapes], encoder_pass: EncoderPass) -> bool:
        """Capture a graph for a shape; restore the state of the random generator."""
        tokens, parts = encoder_pass.tokens, key[0]
        state = torch.cuda.get_rng_state(tokens.device)
        if parts not in self._pools:
            self._pools[parts] = torch.cuda.graph_pool_handle()
        try:
            with dropout_set(self.student.backbone, encoder_pass.dropout):
                self._graphs[key] = torch.cuda.make_graphed_callables(
                    _Pass(self.student, self.bf16),
                    tuple(tensor.clone() for tensor in encoder_pass.inputs),
                    num_warmup_iters=_WARM_UPS,
                    allow_unused_input=True,
                    pool=self._pools[parts],
                )
        except RuntimeError as error:
            _warn_of_no_graphs(error)
            return False
        finally:
            torch.cuda.set_rng_state(state, tokens.device)
        return True


class GraphedForward:
    """Runs a function of tensors without gradients by CUDA graphs, captured per shape on first use.

    It runs under the caller's autocast, and eagerly if its inputs are not on a GPU or the capture has failed.
    """

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function = function
        self._graphs: dict[tuple[torch.Size, ...], tuple[torch.cuda.CUDAGraph, Inputs, Tensor]] = {}
        self._pool: Any = None
        self._supported = True

    @torch.no_grad()
    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the function's result."""
        shapes = tuple(tensor.shape for tensor in inputs)
        if self._supported and inputs[0].is_cuda and shapes not in self._graphs:
            self._supported = self._capture(shapes, inputs)
        if shapes not in self._graphs:
            return self.function(*inputs)
        graph, buffers, output = self._graphs[shapes]
        for buffer, tensor in zip(buffers, inputs, strict=True):
            buffer.copy_(tensor)
        graph.replay()
        return output.clone()

    def _capture(self, shapes: tuple[torch.Size, ...], inputs: Inputs) -> bool:
        device, buffers = inputs[0].device, tuple(tensor.clone() for tensor in inputs)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        enabled, dtype = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)
        side_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side_stream.wait_stream(torch.cuda.current_stream(device))
        try:
            with torch.autocast(device.type, dtype, enabled=enabled, cache_enabled=False):
                with torch.cuda.stream(side_stream):
                    for _ in range(_WARM_UPS):
                        self.function(*buffers)
                torch.cuda.current_stream(device).wait_stream(side_stream)
                with torch.cuda.graph(graph, pool=self._pool):
                    output = self.function(*buffers)
        except RuntimeError as error:
            _warn_of_no_graphs(error)
            return False
        self._graphs[shapes] = graph, buffers, output
        return True


def _warn_of_no_graphs(error: RuntimeError) -> None:
    """Warn of a failed capture, such as of a model whose control flow depends on values."""
    log.warning("no CUDA graphs for this encoder (%s); training continues without", str(error).splitlines()[0])


class _Pass(nn.Module):
    """The captured module: tokens to tensors. Its submodules are the student's, so that gradients are captured."""

    def __init__(self, student: BaseStudent, bf16: bool) -> None:
        super().__init__()
        self.parts = nn.ModuleList(part for part in (student.backbone, student.attention, student.head) if part)
        self._student = (student,)
        self._bf16 = bf16

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The tensors of `BaseStudent.encode` in the order of `BaseStudent.encoded_names`."""
        student = self._student[0]
        with torch.autocast(inputs[0].device.type, torch.bfloat16, enabled=self._bf16, cache_enabled=False):
            encoded = student.encode(*inputs)
        return tuple(encoded[name] for name in student.encoded_names)
