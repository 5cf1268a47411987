"""Losses of single tokens: masked language modelling (BERT) and replaced-token detection (DiffCSE, ELECTRA)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from layerwise.errors import InputError
from layerwise.objectives.contrast import full_dtype
from layerwise.objectives.shapes import check_same_shape, check_shape

IGNORED = -100  # the label of tokens that are in no loss


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
    """Hide some tokens (BERT, section 3.1). (b, t), (b, t) -> masked ids (b, t), labels (b, t), -100 if not chosen

    Args:
        ids: (b, t), whole numbers.
        special: (b, t), true where a token is never chosen: [CLS], [SEP], padding.
        mask_id: The id of [MASK].
        vocabulary: How many ids there are, for random ones.
        share: The chance of each token that is not special to be chosen: 0.15 in BERT, 0.30 in DiffCSE.
        keep: The chance of a chosen token to stay as it is.
        random: The chance of a chosen token to become any id; with `keep` 0 too, chosen is always [MASK] (DiffCSE).
        generator: For draws that can be repeated, of any device: they are made there, so one of the CPU gives the
            same masks everywhere.
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
    """Mean cross-entropy over the chosen tokens; 0 where none is chosen. (b, t, v), (b, t) -> scalar

    Only the chosen tokens' logits are made float32, a small part of all.
    """
    check_shape("logits", logits, ("sentences", "tokens", "vocabulary"))
    check_same_shape(logits=logits[..., 0], labels=labels)
    chosen = labels != IGNORED
    rows = logits[chosen].to(full_dtype(logits))
    return F.cross_entropy(rows, labels[chosen], reduction="sum") / max(len(rows), 1)


def replaced_token_loss(logits: Tensor, replaced: Tensor, mask: Tensor) -> Tensor:
    """Was this token replaced? DiffCSE's L_RTD, the mean over the tokens of the mask. (b, t), (b, t), (b, t) -> scalar

    Args:
        logits: (b, t), above 0 for "replaced".
        replaced: (b, t), true where a token is not the original one.
        mask: (b, t), true where a token counts: the attention mask, with or without special tokens. 0 without any.
    """
    check_shape("logits", logits, ("sentences", "tokens"))
    check_same_shape(logits=logits, replaced=replaced, mask=mask)
    mask = mask.bool()
    full = logits.to(full_dtype(logits)).masked_fill(~mask, 0)  # padding stays out of the gradient, whatever its values
    losses = F.binary_cross_entropy_with_logits(full, replaced.to(full), reduction="none")
    return losses.masked_fill(~mask, 0).sum() / mask.sum().clamp_min(1)


def _check_chances(**chances: float) -> None:
    for name, chance in chances.items():
        if not 0 <= chance <= 1:
            raise InputError(f"{name} {chance} is not possible; give a number from 0 to 1")
    if chances["keep"] + chances["random"] > 1:
        raise InputError(f"keep {chances['keep']} and random {chances['random']} are more than 1 together; give less")
