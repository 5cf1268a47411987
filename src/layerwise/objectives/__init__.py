"""What training makes small: pure functions of tensors, with nothing of a model or a trainer in them."""

from layerwise.objectives.contrast import cosines, info_nce, nt_xent
from layerwise.objectives.gather import gather_rows, rank, world_size
from layerwise.objectives.self_contrastive import self_contrastive
from layerwise.objectives.self_guided import add_pull_to_start, self_guided, squared_distance
from layerwise.objectives.tokens import mask_tokens, masked_language_loss, replaced_token_loss

__all__ = [
    "add_pull_to_start",
    "cosines",
    "gather_rows",
    "info_nce",
    "mask_tokens",
    "masked_language_loss",
    "nt_xent",
    "rank",
    "replaced_token_loss",
    "self_contrastive",
    "self_guided",
    "squared_distance",
    "world_size",
]
