"""Gradient caching: batches beyond memory, by running the encoder twice over small chunks.

First every chunk is encoded without a graph; the loss of the whole batch gives the gradient of every embedding and
view; then every chunk is encoded again, with the same dropout, and its part of that gradient flows into the weights.
The result is that of one large batch. (Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory
Limited Setup".)
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from layerwise.train.contrastive.student import Encoded, Student


def cached_backward(
    student: Student,
    tokens: Tensor,
    mask: Tensor,
    rows: int,
    frozen: Tensor | None,
    *,
    chunk: int,
    precision: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> dict[str, Any]:
    """The loss of a batch as `Student.forward` returns it, detached; gradients are added to the weights.

    `precision` opens autocast. It is opened again for each pass, for it caches the weights that it has cast, and those
    of the pass without a graph have no gradient.
    """
    pieces = list(zip(torch.split(tokens, chunk), torch.split(mask, chunk), strict=True))
    states, encoded = [], []
    with torch.no_grad():
        for piece in pieces:
            states.append(_random_state(tokens.device))
            with precision():
                encoded.append(student.encode(*piece))
    joint = {name: torch.cat([part[name] for part in encoded]).requires_grad_() for name in encoded[0]}
    with precision():
        output = student.loss(joint, tokens, mask, rows, frozen)
    output["loss"].backward()
    after = _random_state(tokens.device)
    for number, (piece, state) in enumerate(zip(pieces, states, strict=True)):
        _set_random_state(state, tokens.device)
        with precision():
            again = student.encode(*piece)
        _backward_chunk(again, joint, slice(number * chunk, (number + 1) * chunk))
    _set_random_state(after, tokens.device)
    return {"loss": output["loss"].detach(), "parts": output["parts"]}


def _backward_chunk(again: Encoded, joint: Encoded, rows: slice) -> None:
    """Backpropagate the cached gradient of some rows through the graph of their chunk."""
    pairs = [(again[name], tensor.grad[rows]) for name, tensor in joint.items() if tensor.grad is not None]
    torch.autograd.backward([tensor for tensor, _ in pairs], [gradient for _, gradient in pairs])


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _set_random_state(state: tuple[Tensor, Tensor | None], device: torch.device) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)
