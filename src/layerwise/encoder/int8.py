"""Makes the int8 graph of a float graph, as its plan says."""

from pathlib import Path
from typing import Any

import numpy as np

from layerwise.encoder.arrays import Array
from layerwise.encoder.int8_plan import Int8Plan, block_size
from layerwise.encoder.int8_steps import FULL
from layerwise.encoder.onnx_attention import (
    DOMAIN,
    add_domain,
    heads_of,
    products_of,
    separate_products,
    weight_of,
)
from layerwise.errors import ModelError
from layerwise.muted import muted


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
    size = block_size(inputs)
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


def _drop_unused(graph: Any) -> None:
    used = {name for node in graph.graph.node for name in node.input}
    kept = [tensor for tensor in graph.graph.initializer if tensor.name in used]
    del graph.graph.initializer[:]
    graph.graph.initializer.extend(kept)
