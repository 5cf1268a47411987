"""SG-BERT: the layers of a frozen copy guide the sentence embedding (Kim et al. 2021, sections 3.1 and 3.2).

Centres are c_i, the trained embeddings; views are h_i, from the frozen copy's layers; both after the projection head,
if there is one. The regulariser pulls the weights back to their initial values:
L_reg = ||BERT_F - BERT_T||².
"""

from collections.abc import Callable, Iterable
from math import inf

import torch
import torch.nn.functional as F
from torch import Tensor

from layerwise.errors import InputError
from layerwise.objectives.contrast import cosines, diagonal_cross_entropy, full_dtype, info_nce, nt_xent
from layerwise.objectives.shapes import check_above_zero, check_same_shape, check_shape, check_widths
from layerwise.registry import Registry

SelfGuidedForm = Callable[[Tensor, Tensor, float], Tensor]
FORMS: Registry[SelfGuidedForm] = Registry("form of the self-guided loss")


def self_guided(centres: Tensor, views: Tensor, *, temperature: float, form: str) -> Tensor:
    """SG's and SG-OPT's losses, the mean over all anchors. (b, d), (b, d) or (b, k, d) -> scalar

    Args:
        centres: (b, d).
        views: (b, d), one sampled view per sentence; for "opt3" (b, k, d), all k layers of each.
        temperature: The divisor of the cosines.
        form: "base" (L_base, NT-Xent), "opt1" (only centres are anchors), "opt2" (and centres are not negatives),
            "opt3" (every layer is a positive in turn; the denominator excludes the other layers of its sentence).
    """
    loss = FORMS[form]
    check_above_zero("temperature", temperature)
    check_shape("centres", centres, ("sentences", "width"))
    check_shape("views", views, ("sentences", "layers", "width") if form == "opt3" else ("sentences", "width"))
    check_widths(centres=centres, views=views)
    check_same_shape(centres=centres, views=views[:, 0] if form == "opt3" else views)
    return loss(centres, views, temperature)


@FORMS.register("base")
def _base(centres: Tensor, views: Tensor, temperature: float) -> Tensor:
    """L_base."""
    return nt_xent(centres, views, temperature=temperature)


@FORMS.register("opt1")
def _opt1(centres: Tensor, views: Tensor, temperature: float) -> Tensor:
    """L_opt1: all views and the other centres in the denominator."""
    logits = cosines(centres, torch.cat([views, centres])) / temperature
    logits.diagonal(len(views)).fill_(-torch.inf)
    return diagonal_cross_entropy(logits)


@FORMS.register("opt2")
def _opt2(centres: Tensor, views: Tensor, temperature: float) -> Tensor:
    """L_opt2: all views in the denominator."""
    return info_nce(centres, views, temperature=temperature)


@FORMS.register("opt3")
def _opt3(centres: Tensor, views: Tensor, temperature: float) -> Tensor:
    """L_opt3: one positive and all the other sentences' views in the denominator. (b, d), (b, k, d) -> scalar"""
    sentences, layers, _ = views.shape
    logits = (cosines(centres, views.flatten(0, 1)) / temperature).view(sentences, sentences, layers)
    same_sentence = torch.eye(sentences, dtype=torch.bool, device=logits.device).unsqueeze(-1)
    positives = logits.diagonal().T  # (b, k)
    others = logits.masked_fill(same_sentence, -torch.inf).flatten(1).logsumexp(dim=1, keepdim=True)  # (b, 1)
    # logaddexp(positives, others) - positives, without cancellation
    return -F.logsigmoid(positives - others).mean()


def squared_distance(parameters: Iterable[Tensor], start: Iterable[Tensor]) -> Tensor:
    """The sum of squared differences over all parameters (SG-BERT's L_reg), without a gradient for `start`."""
    sums = []
    for parameter, initial in _pairs(parameters, start):
        dtype = full_dtype(parameter, initial)
        sums.append((parameter.to(dtype) - initial.detach().to(dtype)).square().sum())
    if not sums:
        raise InputError("No parameters came; give a model's parameters and their starting values")
    return torch.stack([part.to(sums[0].device) for part in sums]).sum()


@torch.no_grad()
def add_pull_to_start(parameters: Iterable[Tensor], start: Iterable[Tensor], *, strength: float) -> None:
    """Add the gradient of `strength * squared_distance(parameters, start)` to each `.grad`, without a graph.

    Call it once before an optimiser step: after the last `backward`, after DDP has averaged the gradients and a
    gradient scaler has unscaled them. Parameters that do not require a gradient are skipped.
    """
    if not 0 <= strength < inf:
        raise InputError(f"strength {strength} is not possible; give 0 or a number above it")
    trained = [(parameter, initial) for parameter, initial in _pairs(parameters, start) if parameter.requires_grad]
    if not trained:
        return
    gradients = []
    for parameter, _ in trained:
        parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        gradients.append(parameter.grad)
    # differences first: adding p and subtracting p0 separately would leave rounding errors where both are equal
    differences = torch._foreach_sub([parameter for parameter, _ in trained], [initial for _, initial in trained])
    torch._foreach_add_(gradients, differences, alpha=2 * strength)


def _pairs(parameters: Iterable[Tensor], start: Iterable[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Each parameter with its initial value."""
    values, initial = list(parameters), list(start)
    if len(values) != len(initial):
        raise InputError(f"{len(values)} parameters and {len(initial)} starting values came; give one for each")
    for number, (now, then) in enumerate(zip(values, initial, strict=True)):
        if now.shape != then.shape:
            raise InputError(
                f"Parameter {number} has the shape {tuple(now.shape)} and its starting value {tuple(then.shape)}; give "
                "both in the same order"
            )
    return list(zip(values, initial, strict=True))
