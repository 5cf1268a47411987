"""What follows a model's mix, in words to read beside a result."""

from layerwise.model import AnyHead, FlowHead, LayerModel
from layerwise.postprocess import ENCODER


def behind_in_words(model: LayerModel) -> str:
    """Such as "whitening fitted on 50,000 sentences of wiki1m"; nothing where the mix is all there is.

    What was fitted last stands last, so the heads that no record tells of are the first ones.
    """
    fitted = [f"{record.what} fitted on {record}" for record in model.fitted_on if record.what != ENCODER]
    own = model.heads[: len(model.heads) - len(fitted)] if len(fitted) < len(model.heads) else ()
    return ", then ".join([*map(_head_in_words, own), *fitted]) if model.heads else ""


def _head_in_words(head: AnyHead) -> str:
    if isinstance(head, FlowHead):
        return "a flow"
    return f"a linear layer ({head.activation}, {head.in_features} to {head.out_features} numbers)"
