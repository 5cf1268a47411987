"""Gradient caching: large batches in bounded memory, by running the encoder twice over small chunks.

First every chunk is encoded without a graph; the loss of the whole batch gives the gradient of every embedding and
view; then every chunk is encoded again, with the same dropout, and its part of that gradient flows into the weights.
The result is that of one large batch. (Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory
Limited Setup".)
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from layerwise.train.loop.student import BaseStudent, Encoded, EncoderPass

Precision = Callable[[], AbstractContextManager[Any]]
RandomState = tuple[Tensor, Tensor | None]


def cached_backward(
    student: BaseStudent, batch: Mapping[str, Any], *, chunk: int, precision: Precision = nullcontext
) -> dict[str, Any]:
    """Compute a batch's detached loss as `BaseStudent.forward` does, and accumulate gradients in the weights.

    `precision` opens autocast. It is reopened for each pass, as it caches cast weights, and those of the pass without a
    graph have no gradient.
    """
    device = student.encoder.device
    passes = [_encode(student, encoder_pass, chunk, precision) for encoder_pass in student.passes(batch)]
    encoded: dict[str, Encoded] = {}
    for cached in passes:
        encoded |= cached.encoder_pass.split(cached.encoded)
    with precision():
        output = student.loss(encoded, batch)
    output["loss"].backward()
    final_state = _random_state(device)
    for cached in passes:
        _backward(student, cached, chunk, precision)
    _set_random_state(final_state, device)
    return {"loss": output["loss"].detach(), "parts": output["parts"]}


@dataclass(frozen=True)
class _Cached:
    """A pass with its outputs, as leaves that collect gradients, and the random state before each chunk."""

    encoder_pass: EncoderPass
    encoded: Encoded
    states: list[RandomState]


def _encode(student: BaseStudent, encoder_pass: EncoderPass, chunk: int, precision: Precision) -> _Cached:
    """Encode a pass in chunks, without a graph."""
    states, chunks = [], []
    with torch.no_grad():
        for piece in _pieces(encoder_pass, chunk):
            states.append(_random_state(piece.tokens.device))
            with precision():
                chunks.append(student.run_pass(piece))
    encoded = {name: torch.cat([part[name] for part in chunks]).requires_grad_() for name in chunks[0]}
    return _Cached(encoder_pass, encoded, states)


def _backward(student: BaseStudent, cached: _Cached, chunk: int, precision: Precision) -> None:
    """Encode a pass again, with a graph, and backpropagate its cached gradient."""
    gradients = {name: tensor.grad for name, tensor in cached.encoded.items() if tensor.grad is not None}
    pieces = zip(_pieces(cached.encoder_pass, chunk), cached.states, strict=True)
    for number, (piece, state) in enumerate(pieces if gradients else ()):
        _set_random_state(state, piece.tokens.device)
        with precision():
            encoded = student.run_pass(piece)
        rows = slice(number * chunk, (number + 1) * chunk)
        pairs = [(encoded[name], grad[rows]) for name, grad in gradients.items() if encoded[name].requires_grad]
        if pairs:  # none where neither encoder nor pooler is trained
            torch.autograd.backward([tensor for tensor, _ in pairs], [gradient for _, gradient in pairs])


def _pieces(encoder_pass: EncoderPass, chunk: int) -> Iterator[EncoderPass]:
    for start in range(0, len(encoder_pass.tokens), chunk):
        rows = slice(start, start + chunk)
        tokens, mask, places = encoder_pass.tokens[rows], encoder_pass.mask[rows], encoder_pass.places
        places = None if places is None else places[rows]
        yield replace(encoder_pass, rows={"chunk": len(tokens)}, tokens=tokens, mask=mask, places=places)


def _random_state(device: torch.device) -> RandomState:
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _set_random_state(state: RandomState, device: torch.device) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)
