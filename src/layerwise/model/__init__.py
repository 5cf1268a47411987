"""`LayerModel`: an encoder, a layer mix and heads, which encodes, saves and loads like a SentenceTransformer."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.model.card import cell, fact_rows
    from layerwise.model.head import ACTIVATIONS, AnyHead, FlowHead, Head, head_of
    from layerwise.model.layer_model import LayerModel
    from layerwise.model.layer_transformer import LayerTransformer
    from layerwise.model.parts import ModelParts
    from layerwise.model.save import check_target
    from layerwise.model.sentence_transformer import is_native

__getattr__, __dir__, __all__ = door(__name__, __file__)
