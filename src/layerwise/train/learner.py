"""What every student is made of: the encoder that is trained in place, a pooler, a head behind it."""

from typing import Self

from torch import nn

from layerwise.encoder.layer_encoder import LayerEncoder
from layerwise.errors import InputError
from layerwise.mixes import LayerAttention, LayerMix


class Learner(nn.Module):
    """Encoder, pooler and head as one module; a subclass adds the loss.

    Args:
        encoder: Its model is trained in place.
        pooler: The mix that makes embeddings, resolved; attention has its network.
        head: Behind the pooler, or identity.
    """

    def __init__(self, encoder: LayerEncoder, pooler: LayerMix, head: nn.Module) -> None:
        super().__init__()
        if encoder.backend != "torch":
            raise InputError("Training runs with the torch backend, not with ONNX")
        self._encoder = (encoder,)  # not a module, and holds the one below
        self.backbone = encoder.model
        self.pooler = pooler
        self.attention = pooler.network if isinstance(pooler, LayerAttention) else None
        self.head = head
        self._known: list[nn.Parameter] = []

    @property
    def encoder(self) -> LayerEncoder:
        """The encoder that is trained."""
        return self._encoder[0]

    def train(self, mode: bool = True) -> Self:
        """Going through hundreds of modules at every step takes milliseconds; only a change of mode does it."""
        return self if self.training == mode else super().train(mode)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The same for gradients."""
        if not set_to_none:
            super().zero_grad(set_to_none=False)
            return
        self._known = self._known or list(self.parameters())
        for parameter in self._known:
            parameter.grad = None
