"""Which arithmetic each linear layer of an int8 graph gets.

A linear layer is multiplied in one of two ways. *Dynamic*: one scale a weight column and one for all activations of a
batch, the fastest. *Blockwise*: one scale for each 128 numbers of a weight column and of a token's activations, slower,
with a fraction of the error. The layers whose dynamic quantisation changes the views most are blockwise, as few as keep
the error small: none of all-MiniLM-L6-v2, many of all-mpnet-base-v2. This is measured once for each model, on sentences
of the package, by quantising one layer at a time in torch. A dynamic weight has as many steps as the processor can
multiply exactly; blockwise products are exact on all of them.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from torch import Tensor, nn

from layerwise.digests import json_digest
from layerwise.encoder.int8_loss import Encode, calibration_pairs
from layerwise.encoder.int8_steps import weight_steps
from layerwise.errors import InputError
from layerwise.files import read_json, write_json

log = logging.getLogger(__name__)
_FORMAT = 4
_BLOCK = 128
_LEAST_BLOCK = 16  # of ONNX Runtime's MatMulNBits
_MOST_BLOCKWISE = 0.35  # of all multiplications
_LITTLE_ERROR = 0.0125  # of dynamic layers together, of the views' variance: costs about a tenth of a point on STS
_CHOOSING = 64  # sentences that choose; all of them measure the loss


@dataclass(frozen=True)
class Int8Plan:
    """Which linear layers of a model, by their names as modules, are quantised blockwise; the others are dynamic.

    `steps` are those of a dynamic weight's magnitude.
    """

    blockwise: tuple[str, ...]
    errors: dict[str, float]
    steps: int = field(default_factory=weight_steps)

    @property
    def digest(self) -> str:
        """Of what decides the numbers of an int8 graph."""
        import onnxruntime

        return json_digest([_FORMAT, _BLOCK, self.steps, list(self.blockwise), onnxruntime.__version__])


def load_plan(path: Path, model: nn.Module, encode: Encode) -> Int8Plan:
    """The plan of a model from its file, or chosen and written there."""
    if path.is_file():
        try:
            facts = read_json(path)
            if facts["format"] == _FORMAT:
                return Int8Plan(tuple(facts["blockwise"]), facts["errors"], int(facts["steps"]))
        except (InputError, KeyError, TypeError, ValueError):
            pass  # damaged: chosen again
    plan = choose_plan(model, encode)
    write_json(path, {"format": _FORMAT, **asdict(plan)}, indent=1)
    return plan


def choose_plan(model: nn.Module, encode: Encode) -> Int8Plan:
    """Quantise one linear layer at a time; those with the largest error for their size are blockwise, if need be."""
    left, right, _ = calibration_pairs()
    texts = [text for pair in zip(left, right, strict=True) for text in pair]
    texts = texts[:: max(1, len(texts) // _CHOOSING)][:_CHOOSING]
    expected = encode(texts)
    spread = ((expected - expected.mean(0)) ** 2).sum((0, 2)) + 1e-12
    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    log.info("Measuring how int8 changes each of %d linear layers of %s, once", len(linear), type(model).__name__)
    errors = {}
    for name, module in linear.items():
        with _quantised(module) as used:
            views = encode(texts)
        if used:  # poolers and heads are not part of the views
            errors[name] = float((((views - expected) ** 2).sum((0, 2)) / spread).mean())
    sizes = {name: linear[name].weight.numel() for name in errors}
    room, error = _MOST_BLOCKWISE * sum(sizes.values()), sum(errors.values())
    blockwise = []
    for name in sorted(errors, key=lambda name: errors[name] / sizes[name], reverse=True):
        if error > _LITTLE_ERROR and sizes[name] <= room and block_size(linear[name].in_features):
            blockwise.append(name)
            room -= sizes[name]
            error -= errors[name]
    return Int8Plan(tuple(sorted(blockwise)), errors)


@contextmanager
def _quantised(module: nn.Linear) -> Iterator[list[bool]]:
    """A linear layer as dynamic int8 computes it; the list tells whether it ran."""
    scale = module.weight.detach().abs().amax(1, keepdim=True).clamp_min(1e-12) / weight_steps()
    weight = (module.weight.detach() / scale).round() * scale
    used: list[bool] = []

    def replace(_module: nn.Module, inputs: tuple[Tensor, ...], _output: Tensor) -> Tensor:
        used.append(True)
        return nn.functional.linear(_rounded(inputs[0]), weight, module.bias)

    handle = module.register_forward_hook(replace)
    try:
        yield used
    finally:
        handle.remove()


def _rounded(values: Tensor) -> Tensor:
    """Activations in 256 steps between their least and largest, as ONNX Runtime's DynamicQuantizeLinear does."""
    low, high = values.min().clamp_max(0), values.max().clamp_min(0)
    step = ((high - low) / 255).clamp_min(1e-12)
    zero = (-low / step).round()
    return ((values / step).round() + zero).clamp(0, 255).sub(zero).mul(step)


def block_size(inputs: int) -> int:
    """The largest block that divides a weight column; 0 where none does."""
    size = _BLOCK
    while size >= _LEAST_BLOCK and inputs % size:
        size //= 2
    return size if size >= _LEAST_BLOCK else 0
