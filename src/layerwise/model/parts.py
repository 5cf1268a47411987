"""What a model has besides its encoder: the parts that are saved, loaded and replaced."""

from dataclasses import dataclass, field
from typing import Any

from layerwise.mixes import LayerMix, LayerSet
from layerwise.model.head import AnyHead
from layerwise.postprocess import FittedOn


@dataclass(frozen=True)
class ModelParts:
    """The arguments of `LayerModel` besides the encoder. The default: the mean of its last layer."""

    mix: LayerMix = field(default_factory=lambda: LayerSet.of(-1))
    heads: tuple[AnyHead, ...] = ()
    normalize: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity: str = "cosine"
    chosen: str = "by hand"
    fitted_on: tuple[FittedOn, ...] = ()
    training: dict[str, Any] = field(default_factory=dict)

    def width(self, layer_width: int) -> int:
        """The length of an embedding, for layers of this width."""
        return self.heads[-1].out_features if self.heads else self.mix.width(layer_width)

    def as_dict(self) -> dict[str, Any]:
        """By name, not copied."""
        return dict(vars(self))
