"""Training objectives: pure functions of tensors, independent of any model or trainer."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.objectives.contrast import cosines, full_dtype, info_nce, nt_xent, own_cosines, unit
    from layerwise.objectives.exits import exit_contrast, exit_distillation
    from layerwise.objectives.gather import gather_rows, rank, world_size
    from layerwise.objectives.momentum import empty_places, enqueue, momentum_update
    from layerwise.objectives.ranking import list_mle, list_net, rank_consistency, vector_distance
    from layerwise.objectives.sg import add_pull_to_start, self_guided, squared_distance
    from layerwise.objectives.shapes import check_rows, check_same_shape
    from layerwise.objectives.sscl import self_contrastive
    from layerwise.objectives.tokens import mask_tokens, masked_language_loss, replaced_token_loss
    from layerwise.objectives.whitening import group_whitened, whitened_contrast

__getattr__, __dir__, __all__ = door(__name__, __file__)
