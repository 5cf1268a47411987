"""Self-attention as one operator of ONNX Runtime instead of the thirty that torch exports.

The small operators take up to a seventh of the time of a short text. ONNX Runtime's Attention computes query, key and
value by one product and reads the mask of padding directly. Only the usual form is replaced: three linear layers of the
same states, scaled products plus a mask, softmax. A graph does not tell whether the mask is one of padding alone, so
the result must be compared with torch.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from layerwise.encoder.arrays import Array

DOMAIN = "com.microsoft"
_MASK = "padding_mask"


@dataclass(frozen=True)
class _Linear:
    """A linear layer of a graph: the name of its MatMul, its input, and its parameters."""

    name: str
    states: str
    weight: Array
    bias: Array


def fuse_attention(model: Any, heads: int) -> int:
    """Replace attention in an ONNX model by one operator each; return the number of replacements."""
    from onnx import TensorProto, helper

    pattern, fused = _Pattern(model.graph), {}
    for node in model.graph.node:
        match = pattern.match(node) if node.op_type == "Softmax" else None
        if match is not None:
            layers, last = match
            fused[last.name] = _attention(model.graph, layers, last, heads)
    if fused:
        cast = helper.make_node("Cast", ["attention_mask"], [_MASK], name=_MASK, to=TensorProto.INT32)
        _replace_nodes(model.graph, [cast, *(fused.get(node.name, node) for node in model.graph.node)])
        add_domain(model)
    return len(fused)


def products_of(attention: Any) -> list[str]:
    """Return the names of the MatMuls of query, key and value that an Attention replaced."""
    return str(attention.doc_string).split("\n")


def weight_of(graph: Any, attention: Any) -> Array:
    """Return the weights of query, key and value side by side: (width, 3 * width)."""
    from onnx import numpy_helper

    weight: Array = next(
        numpy_helper.to_array(tensor) for tensor in graph.initializer if tensor.name == attention.input[1]
    )
    return weight


def heads_of(attention: Any) -> int:
    """Return the number of heads."""
    return next(int(attribute.i) for attribute in attention.attribute if attribute.name == "num_heads")


def separate_products(graph: Any, attention: Any) -> list[Any]:
    """Return the nodes of an Attention with separate MatMuls of query, key and value, under their former names."""
    from onnx import helper, numpy_helper

    states, _, bias, mask = attention.input
    products = []
    for name, weight in zip(products_of(attention), np.split(weight_of(graph, attention), 3, axis=1), strict=True):
        graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(weight), f"{name}_weight"))
        products.append(helper.make_node("MatMul", [states, f"{name}_weight"], [f"{name}_product"], name=name))
    rest = helper.make_node(
        "MultiHeadAttention",
        [*(product.output[0] for product in products), bias, mask],
        list(attention.output),
        name=attention.name,
        domain=DOMAIN,
        num_heads=heads_of(attention),
    )
    return [*products, rest]


def add_domain(model: Any) -> None:
    """Declare that a model has operators of ONNX Runtime."""
    from onnx import helper

    if all(entry.domain != DOMAIN for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))


def _attention(graph: Any, layers: list[_Linear], last: Any, heads: int) -> Any:
    from onnx import helper, numpy_helper

    weight = np.concatenate([layer.weight for layer in layers], axis=1)
    bias = np.concatenate([layer.bias for layer in layers])
    tensors = {f"{last.name}_weight": weight, f"{last.name}_bias": bias}
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in tensors.items())
    return helper.make_node(
        "Attention",
        [layers[0].states, *tensors, _MASK],
        list(last.output),
        name=last.name,
        domain=DOMAIN,
        doc_string="\n".join(layer.name for layer in layers),
        num_heads=heads,
    )


def _replace_nodes(graph: Any, nodes: list[Any]) -> None:
    """Set the nodes of a graph, without those and the weights that no output needs."""
    used = {output.name for output in graph.output}
    used_nodes = []
    for node in reversed(nodes):
        if used.intersection(node.output):
            used.update(node.input)
            used_nodes.append(node)
    tensors = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(reversed(used_nodes))
    graph.initializer.extend(tensors)


class _Pattern:
    """Recognises attention in a graph by its softmax, from which it follows the nodes in both directions."""

    def __init__(self, graph: Any) -> None:
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self._producers = {output: node for node in graph.node for output in node.output}
        self._consumers = {name: node for node in graph.node for name in node.input}
        self._uses = Counter(name for node in graph.node for name in node.input)

    def match(self, softmax: Any) -> tuple[list[_Linear], Any] | None:
        """Return the linear layers of query, key and value, and the node whose output is that of the attention."""
        scores = self._above(softmax.input[0], "Add", "MatMul")
        averages = self._below(self._without_nan(softmax), "MatMul")
        last = None if averages is None else self._below(averages, "Transpose", "Reshape")
        if scores is None or averages is None or last is None:
            return None
        layers = [self._linear(name) for name in (*scores.input, averages.input[1])]
        alike = {(layer.states, layer.weight.shape) for layer in layers if layer is not None}
        return ([layer for layer in layers if layer], last) if None not in layers and len(alike) == 1 else None

    def _without_nan(self, softmax: Any) -> Any:
        """Return the node by which torch replaces NaN in the rows of a softmax, or the softmax if there is none."""
        consumer = self._consumers[softmax.output[0]]
        return consumer if consumer.op_type == "Where" else softmax

    def _linear(self, name: str) -> _Linear | None:
        """Return the layer whose output, divided among the heads and perhaps scaled, has this name."""
        scaled = self._producers.get(name)
        if scaled is not None and scaled.op_type == "Mul":
            name = scaled.input[0]
        addition = self._above(name, "Transpose", "Reshape", "Add")
        if addition is None:
            return None
        products = [node for name in addition.input if (node := self._producers.get(name)) and node.op_type == "MatMul"]
        biases = [array for name in addition.input if (array := self._constant(name)) is not None]
        if len(products) != 1 or len(biases) != 1:
            return None
        weight = self._constant(products[0].input[1])
        return None if weight is None else _Linear(products[0].name, products[0].input[0], weight, biases[0])

    def _constant(self, name: str) -> Array | None:
        """Return a weight; of equal weights, torch exports one and the others as Identity of it."""
        from onnx import numpy_helper

        producer = self._producers.get(name)
        if producer is not None and producer.op_type == "Identity":
            name = producer.input[0]
        return numpy_helper.to_array(self._weights[name]) if name in self._weights else None

    def _above(self, name: str, *kinds: str) -> Any | None:
        """Follow first inputs upwards through nodes of these kinds; return the last, or None if one is another."""
        node = None
        for kind in kinds:
            node = self._producers.get(name)
            if node is None or node.op_type != kind:
                return None
            name = node.input[0]
        return node

    def _below(self, node: Any, *kinds: str) -> Any | None:
        """Follow outputs that are used once downwards through nodes of these kinds; return the last, or None."""
        for kind in kinds:
            name = node.output[0]
            if self._uses[name] != 1 or self._consumers[name].op_type != kind:
                return None
            node = self._consumers[name]
        return node
