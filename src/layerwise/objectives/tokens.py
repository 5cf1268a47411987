"""Token-level losses: masked language modelling (BERT) and replaced-token detection (DiffCSE, ELECTRA)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from layerwise.errors import InputError
from layerwise.objectives.contrast import full_dtype
from layerwise.objectives.shapes import check_same_shape, check_shape

IGNORED = -100  # the label of tokens without a loss


def mask_tokens(
    ids: Tensor,
    special: Tensor,
    *,
    mask_id: int,
    vocabulary: int,
    share: float,
    keep: float = 0.1,
    random: float = 0.1,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Mask tokens (BERT, section 3.1). (b, t), (b, t) -> masked ids (b, t), labels (b, t), -100 if not chosen

    Args:
        ids: (b, t), integers.
        special: (b, t), true for tokens that are never chosen: [CLS], [SEP], padding.
        mask_id: The id of [MASK].
        vocabulary: The number of ids, from which random ones are drawn.
        share: The probability of choosing a token that is not special: 0.15 in BERT, 0.30 in DiffCSE.
        keep: The probability that a chosen token stays unchanged.
        random: The probability that a chosen token is replaced by a random id; with `keep` and `random` 0, chosen
            tokens are always replaced by [MASK] (DiffCSE).
        generator: For reproducible draws, which are made on its device: a CPU generator gives the same masks on all
            devices.
    """
    check_shape("ids", ids, ("sentences", "tokens"))
    check_same_shape(ids=ids, special=special)
    _check_chances(share=share, keep=keep, random=random)
    if not 0 <= mask_id < vocabulary:
        raise InputError(f"mask_id {mask_id} is not one of {vocabulary} ids; give the tokenizer's mask_token_id")
    source = ids.device if generator is None else generator.device
    choice, change = torch.rand((2, *ids.shape), generator=generator, device=source).to(ids.device)
    drawn = torch.randint(vocabulary, ids.shape, generator=generator, device=source).to(ids)
    chosen = (choice < share) & ~special.bool()
    changed = torch.where(change < keep + random, drawn, mask_id)
    masked = torch.where(chosen & (change >= keep), changed, ids)
    return masked, ids.long().masked_fill(~chosen, IGNORED)


def masked_language_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy over the chosen tokens; 0 if none is chosen. (b, t, v), (b, t) -> scalar

    Only the chosen tokens' logits are converted to float32, a small part of all.
    """
    check_shape("logits", logits, ("sentences", "tokens", "vocabulary"))
    check_same_shape(logits=logits[..., 0], labels=labels)
    chosen = labels != IGNORED
    rows = logits[chosen].to(full_dtype(logits))
    return F.cross_entropy(rows, labels[chosen], reduction="sum") / max(len(rows), 1)


def replaced_token_loss(logits: Tensor, replaced: Tensor, mask: Tensor) -> Tensor:
    """Replaced-token detection: DiffCSE's L_RTD, mean over the tokens of the mask. (b, t), (b, t), (b, t) -> scalar

    Args:
        logits: (b, t), above 0 for "replaced".
        replaced: (b, t), true for tokens that differ from the original.
        mask: (b, t), true for tokens that count: the attention mask, with or without special tokens. The loss is 0 if
            it is empty.
    """
    check_shape("logits", logits, ("sentences", "tokens"))
    check_same_shape(logits=logits, replaced=replaced, mask=mask)
    mask = mask.bool()
    full = logits.to(full_dtype(logits)).masked_fill(~mask, 0)  # no gradient from padding, whatever its values
    losses = F.binary_cross_entropy_with_logits(full, replaced.to(full), reduction="none")
    return losses.masked_fill(~mask, 0).sum() / mask.sum().clamp_min(1)


def _check_chances(**chances: float) -> None:
    for name, chance in chances.items():
        if not 0 <= chance <= 1:
            raise InputError(f"{name} {chance} is not possible; give a number from 0 to 1")
    if chances["keep"] + chances["random"] > 1:
        raise InputError(f"keep {chances['keep']} and random {chances['random']} are more than 1 together; give less")
