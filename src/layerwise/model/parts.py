"""The parts of a model after its encoder, which are saved, loaded and replaced."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

from layerwise.mixes import Mean, Mix
from layerwise.model.head import AnyHead
from layerwise.postprocess import ENCODER, FittedOn


@dataclass(frozen=True)
class ModelParts:
    """The arguments of `LayerModel` except the encoder. The default is the mean of the last layer."""

    mix: Mix = field(default_factory=lambda: Mean.of(-1))
    heads: tuple[AnyHead, ...] = ()
    normalize: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity: str = "cosine"
    truncate_dim: int | None = None
    chosen: str = "by hand"
    fitted_on: tuple[FittedOn, ...] = ()
    training: dict[str, Any] = field(default_factory=dict)

    def width(self, layer_width: int) -> int:
        """Return the width of embeddings, for layers of this width."""
        width = self.heads[-1].out_features if self.heads else self.mix.width(layer_width)
        return width if self.truncate_dim is None else self.truncate_dim

    def with_mix(self, mix: Mix) -> Self:
        """Return the parts with another mix, without heads and their records."""
        records = tuple(record for record in self.fitted_on if record.what == ENCODER)
        return replace(self, mix=mix, heads=(), normalize=False, truncate_dim=None, chosen="by hand", fitted_on=records)

    def as_dict(self) -> dict[str, Any]:
        """Return the parts by name, without copying."""
        return dict(vars(self))
