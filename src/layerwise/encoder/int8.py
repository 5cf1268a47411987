"""int8 weights for ONNX graphs: which arithmetic each linear layer gets, the graph, and what it loses.

A linear layer is multiplied in one of two ways. *Dynamic*: one scale a weight column and one for all activations of a
batch, the fastest. *Blockwise*: one scale for each 128 numbers of a weight column and of a token's activations, slower,
with a fraction of the error. The layers whose dynamic quantisation changes the views most are blockwise, as few as keep
the error small: none of all-MiniLM-L6-v2, many of all-mpnet-base-v2. This is measured once for each model, on sentences
of the package, by quantising one layer at a time in torch. A dynamic weight has as many steps as the processor can
multiply exactly; blockwise products are exact on all of them.
"""

import csv
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from layerwise.digests import json_digest
from layerwise.encoder.arrays import Array
from layerwise.encoder.int8_steps import FULL, weight_steps
from layerwise.encoder.onnx_attention import (
    DOMAIN,
    add_domain,
    heads_of,
    products_of,
    separate_products,
    weight_of,
)
from layerwise.errors import InputError, ModelError
from layerwise.files import read_json, write_json
from layerwise.muted import muted

log = logging.getLogger(__name__)
Encode = Callable[[Sequence[str]], Array]  # texts to views (texts, layers, width)
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


@dataclass(frozen=True)
class Int8Loss:
    """What an int8 graph loses against the float graph, on the sentences and graded pairs of the package.

    `cosine` is the mean over sentences of each layer's cosine with float; `points` are Spearman × 100 of the pairs.
    """

    cosine: list[float]
    points_float: list[float]
    points_int8: list[float]
    sentences: int
    pairs: int

    def __str__(self) -> str:
        lost = self.points_float[-1] - self.points_int8[-1]
        return (
            f"cosine with float {self.cosine[-1]:.4f}, {self.points_int8[-1]:.1f} points instead of "
            f"{self.points_float[-1]:.1f} on {self.pairs} pairs ({-lost:+.2f})"
        )


def stored_loss(path: Path, sha256: str) -> Int8Loss | None:
    """The loss of the graph with this checksum from its file; None if the file is missing, damaged or of another."""
    try:
        facts = read_json(path)
        if facts["sha256"] != sha256:
            return None
        cosine, points_float, points_int8 = (
            [_number(value) for value in facts[name]] for name in ("cosine", "points_float", "points_int8")
        )
        loss = Int8Loss(cosine, points_float, points_int8, int(facts["sentences"]), int(facts["pairs"]))
        return loss if cosine and points_float and points_int8 else None
    except (InputError, KeyError, TypeError, ValueError):
        return None


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)  # JSON has no NaN


def calibration_pairs() -> tuple[list[str], list[str], list[float]]:
    """The graded pairs that come with the package."""
    text = (resources.files("layerwise.data") / "demo_pairs.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    return [row["sentence1"] for row in rows], [row["sentence2"] for row in rows], [float(row["score"]) for row in rows]


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
        if error > _LITTLE_ERROR and sizes[name] <= room and _block_size(linear[name].in_features):
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


def quantise(source: Path, target: Path, plan: Int8Plan) -> None:
    """Write the int8 graph of a float graph: weights of MatMul and Gemm only."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(source)
    _quantise_attention(graph, plan)
    weights = {tensor.name: tensor for tensor in graph.graph.initializer}
    names = {node.name for node in graph.graph.node if node.op_type in ("MatMul", "Gemm") and node.input[1] in weights}
    if not names:
        raise ModelError("This encoder's graph has no linear layer to quantise; use precision float")
    for node in graph.graph.node:
        if node.op_type == "MatMul" and node.input[1] in weights and _module_of(node.name) in plan.blockwise:
            _make_blockwise(graph, node, onnx.numpy_helper.to_array(weights[node.input[1]]))
    _drop_unused(graph)
    with muted(""):  # it warns through the root logger of steps that do not apply here
        quantize_dynamic(
            graph,
            target,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            reduce_range=plan.steps < FULL,
            extra_options={"MatMulConstBOnly": True, "DefaultTensorType": onnx.TensorProto.FLOAT},
        )


def _quantise_attention(model: Any, plan: Int8Plan) -> None:
    """Quantise each Attention dynamically; one with a blockwise product is separated, and its products are later."""
    graph, nodes = model.graph, []
    for node in graph.node:
        if node.op_type != "Attention":
            nodes.append(node)
        elif any(_module_of(name) in plan.blockwise for name in products_of(node)):
            nodes.extend(separate_products(graph, node))
        else:
            nodes.extend(_dynamic_attention(graph, node, plan.steps))
    del graph.node[:]
    graph.node.extend(nodes)


def _dynamic_attention(graph: Any, attention: Any, most_steps: int) -> list[Any]:
    """Return nodes that quantise the states and read an int8 weight, with one scale a column."""
    from onnx import helper, numpy_helper

    name, weight = attention.name, weight_of(graph, attention)
    scale = np.maximum(np.abs(weight).max(0) / most_steps, 1e-12).astype(np.float32)
    steps = np.round(weight / scale).astype(np.int8)
    arrays = {f"{name}_int8": steps, f"{name}_scale": scale, f"{name}_zero": np.zeros_like(steps[0])}
    graph.initializer.extend(numpy_helper.from_array(array, key) for key, array in arrays.items())
    states, _, bias, mask = attention.input
    rounded = [f"{name}_states{part}" for part in ("", "_scale", "_zero")]
    inputs = [rounded[0], f"{name}_int8", bias, rounded[1], f"{name}_scale", mask, rounded[2], f"{name}_zero"]
    heads, outputs = heads_of(attention), list(attention.output)
    return [
        helper.make_node("DynamicQuantizeLinear", [states], rounded, name=f"{name}_quantise"),
        helper.make_node("QAttention", inputs, outputs, name=name, domain=DOMAIN, num_heads=heads),
    ]


def _module_of(node: str) -> str:
    """The module that a node was exported from: "/model/encoder/layer.0/output/dense/MatMul" is of "encoder.layer…"."""
    return ".".join(node.removeprefix("/model/").split("/")[:-1])


def _make_blockwise(graph: Any, node: Any, weight: Array) -> None:
    """Replace a MatMul by ONNX Runtime's MatMulNBits of 8 bits with int8 activations."""
    from onnx import helper, numpy_helper

    inputs, outputs = weight.shape
    size = _block_size(inputs)
    blocks = weight.T.reshape(outputs, inputs // size, size)
    scale = np.maximum(np.abs(blocks).max(2, keepdims=True) / 127, 1e-12).astype(np.float32)
    steps = (np.round(blocks / scale) + 128).astype(np.uint8)
    tensors = {f"{node.name}_int8": steps, f"{node.name}_scale": scale[..., 0]}
    graph.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in tensors.items())
    sizes = {"K": inputs, "N": outputs, "bits": 8, "block_size": size, "accuracy_level": 4}
    new = helper.make_node(
        "MatMulNBits", [node.input[0], *tensors], list(node.output), name=node.name, domain=DOMAIN, **sizes
    )
    node.CopyFrom(new)
    add_domain(graph)


def _block_size(inputs: int) -> int:
    """The largest block that divides a weight column; 0 where none does."""
    size = _BLOCK
    while size >= _LEAST_BLOCK and inputs % size:
        size //= 2
    return size if size >= _LEAST_BLOCK else 0


def _drop_unused(graph: Any) -> None:
    used = {name for node in graph.graph.node for name in node.input}
    kept = [tensor for tensor in graph.graph.initializer if tensor.name in used]
    del graph.graph.initializer[:]
    graph.graph.initializer.extend(kept)


def measure_loss(encode_float: Encode, encode_int8: Encode) -> Int8Loss:
    """Compare two graphs on the sentences of the package."""
    from scipy.stats import spearmanr

    left, right, gold = calibration_pairs()
    corpus = (resources.files("layerwise.data") / "demo_corpus.txt").read_text(encoding="utf-8").splitlines()
    texts = [*left, *right, *corpus]
    views = [encode(texts) for encode in (encode_float, encode_int8)]
    points = []
    for array in views:
        similarity = _cosine(array[: len(left)], array[len(left) : len(left) + len(right)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # layer 0 of the first token is constant: NaN
            points.append([100 * float(spearmanr(layer, gold).statistic) for layer in similarity.T])
    return Int8Loss(
        cosine=_cosine(*views).mean(0).tolist(),
        points_float=points[0],
        points_int8=points[1],
        sentences=len(texts),
        pairs=len(left),
    )


def _cosine(left: Array, right: Array) -> Array:
    """(texts, layers, width) twice -> (texts, layers)"""
    lengths = np.linalg.norm(left, axis=2) * np.linalg.norm(right, axis=2)
    similarity: Array = (left * right).sum(2) / np.maximum(lengths, 1e-12)
    return similarity
