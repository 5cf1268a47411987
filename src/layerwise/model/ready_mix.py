"""A mix made ready for an encoder: in its layer numbers, with weights on its device, or refused."""

from layerwise.encoder.layer_encoder import LayerEncoder
from layerwise.errors import MixError
from layerwise.mixes import LayerAttention, LayerMix, LayerWk, parse_mix


def ready_mix(mix: LayerMix | str, encoder: LayerEncoder) -> LayerMix:
    """The mix, or its text, for this encoder. The weights of an attention are moved and set to evaluation in place."""
    ready = (parse_mix(mix) if isinstance(mix, str) else mix).resolve(encoder.depth)
    if isinstance(ready, LayerWk) and encoder.backend == "onnx":
        raise MixError(f"{ready} reads token states, which ONNX graphs don't give; use the torch backend")
    if isinstance(ready, LayerAttention):
        network = ready.trained
        if network.width != encoder.width:
            raise MixError(
                f"{ready} has weights for layers of {network.width} numbers; this encoder's have {encoder.width}"
            )
        network.to(encoder.device).float().eval()
    return ready
