"""Layer numbers: 0 is the embedding layer, 1 to `depth` are the blocks; negative numbers count from the last."""

from layerwise.errors import MixError


def valid_range(depth: int) -> str:
    """What to tell a user who named a layer that is not there."""
    return f"this encoder has layers 0 to {depth}, or -{depth + 1} to -1 from the last"


def resolve_layer(layer: int, depth: int) -> int:
    """A layer's number from 0."""
    if not -depth - 1 <= layer <= depth:
        raise MixError(f"There is no layer {layer}: {valid_range(depth)}")
    return layer if layer >= 0 else layer + depth + 1
