"""Training objectives: pure functions of tensors, independent of any model or trainer."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.objectives.contrast import cosines as cosines
    from layerwise.objectives.contrast import full_dtype as full_dtype
    from layerwise.objectives.contrast import info_nce as info_nce
    from layerwise.objectives.contrast import nt_xent as nt_xent
    from layerwise.objectives.contrast import own_cosines as own_cosines
    from layerwise.objectives.gather import gather_rows as gather_rows
    from layerwise.objectives.gather import rank as rank
    from layerwise.objectives.gather import world_size as world_size
    from layerwise.objectives.sg import add_pull_to_start as add_pull_to_start
    from layerwise.objectives.sg import self_guided as self_guided
    from layerwise.objectives.sg import squared_distance as squared_distance
    from layerwise.objectives.shapes import check_rows as check_rows
    from layerwise.objectives.shapes import check_same_shape as check_same_shape
    from layerwise.objectives.sscl import self_contrastive as self_contrastive
    from layerwise.objectives.tokens import mask_tokens as mask_tokens
    from layerwise.objectives.tokens import masked_language_loss as masked_language_loss
    from layerwise.objectives.tokens import replaced_token_loss as replaced_token_loss

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "add_pull_to_start": ".sg",
        "check_rows": ".shapes",
        "check_same_shape": ".shapes",
        "cosines": ".contrast",
        "full_dtype": ".contrast",
        "gather_rows": ".gather",
        "info_nce": ".contrast",
        "mask_tokens": ".tokens",
        "masked_language_loss": ".tokens",
        "nt_xent": ".contrast",
        "own_cosines": ".contrast",
        "rank": ".gather",
        "replaced_token_loss": ".tokens",
        "self_contrastive": ".sscl",
        "self_guided": ".sg",
        "squared_distance": ".sg",
        "world_size": ".gather",
    },
)
