"""How many steps an int8 weight may have on this processor.

ONNX Runtime multiplies 8-bit activations with int8 weights. x86 processors without VNNI add every two products in 16
bits, where two products of full weights overflow and are cut off: without an error, and with other embeddings. Weights
of half as many steps cannot overflow.
"""

from functools import lru_cache
from typing import Any

import numpy as np

FULL = 127
REDUCED = 64


@lru_cache(maxsize=1)
def weight_steps() -> int:
    """Of a weight's magnitude: `FULL`, or `REDUCED` where the largest products of full weights are cut off."""
    activations = np.full((1, 64), 255, dtype=np.uint8)
    exact = activations.astype(np.int32).sum() * FULL
    return FULL if (_products(activations, FULL) == exact).all() else REDUCED


def _products(activations: np.ndarray[Any, Any], weight: int) -> np.ndarray[Any, Any]:
    """Multiply by ONNX Runtime with a matrix of one weight."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    weights = np.full((activations.shape[1], 32), weight, dtype=np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["activations", "weights"], ["products"])],
        "products",
        [helper.make_tensor_value_info("activations", TensorProto.UINT8, activations.shape)],
        [helper.make_tensor_value_info("products", TensorProto.INT32, None)],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (products,) = session.run(None, {"activations": activations})
    return np.asarray(products)
