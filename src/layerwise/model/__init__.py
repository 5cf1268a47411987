"""The saved, loadable thing: an encoder, a layer mix and heads, which encode like a SentenceTransformer."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.model.card import cell as cell
    from layerwise.model.card import fact_rows as fact_rows
    from layerwise.model.head import ACTIVATIONS as ACTIVATIONS
    from layerwise.model.head import AnyHead as AnyHead
    from layerwise.model.head import FlowHead as FlowHead
    from layerwise.model.head import Head as Head
    from layerwise.model.head import head_of as head_of
    from layerwise.model.layer_model import LayerModel as LayerModel
    from layerwise.model.parts import ModelParts as ModelParts
    from layerwise.model.save import check_target as check_target
    from layerwise.model.sentence_transformer import is_native as is_native

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "ACTIVATIONS": ".head",
        "AnyHead": ".head",
        "FlowHead": ".head",
        "Head": ".head",
        "LayerModel": ".layer_model",
        "ModelParts": ".parts",
        "cell": ".card",
        "check_target": ".save",
        "fact_rows": ".card",
        "head_of": ".head",
        "is_native": ".sentence_transformer",
    },
)
