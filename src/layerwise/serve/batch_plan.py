"""What a batch computes: the union of the views that its rows need, then the mix of each request."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from torch import Tensor

from layerwise.encoder import Array, LayerEncoder
from layerwise.serve.jobs import Piece, embedded

Needs = tuple[list[int], list[str]]  # layers and token poolings
Covering = Callable[[set[int], dict[str, None]], Needs | None]


def as_needed(layers: set[int], poolings: dict[str, None]) -> Needs:
    """Read exactly the layers and token poolings that a batch needs."""
    return sorted(layers), list(poolings)


class BatchPlan:
    """What a batch computes: the union of the views that its rows need, then each model's embeddings of its rows.

    `covering` gives what is read instead of the union, or None for the union itself.
    """

    def __init__(
        self, encoder: LayerEncoder, members: Sequence[tuple[Piece, int]], covering: Covering = as_needed
    ) -> None:
        self._encoder = encoder
        self.members = members
        groups: dict[tuple[int, int], list[int]] = {}
        for place, (piece, _) in enumerate(members):
            groups.setdefault((id(piece.job.model), piece.number), []).append(place)
        self.groups = list(groups.values())
        layers: set[int] = set()
        poolings: dict[str, None] = {}
        for piece, _ in (members[group[0]] for group in self.groups):
            poolings |= dict.fromkeys(piece.text_pass.needs)
            layers.update(*piece.text_pass.needs.values())
        self._layers, self._poolings = covering(layers, poolings) or as_needed(layers, poolings)

    def forward(self, tokens: Tensor, mask: Tensor, places: Tensor | None = None) -> list[Tensor]:
        """Return the embeddings of each group of rows; for a mix of several prompts, its views of this prompt."""
        job = self.members[0][0].job
        if job.model.mix.reads_tokens:
            return [job.model.forward(tokens, mask)]
        views = self._encoder.read(tokens, mask, self._layers, self._poolings, places).float()
        return [self._values(views, group) for group in self.groups]

    def finish(self, values: Sequence[Tensor]) -> None:
        """Pass the rows of each group to their jobs."""
        for group, tensor in zip(self.groups, values, strict=True):
            array: Array = tensor.cpu().numpy()
            for piece, places, rows in _by_piece(self.members, group):
                piece.job.put(piece.number, np.array(rows), array[places])

    def _values(self, views: Tensor, group: list[int]) -> Tensor:
        piece, _ = self.members[group[0]]
        mixed, needs = piece.job.mixed, piece.text_pass.needs
        selected = views if len(group) == len(self.members) else views[group]
        if len(piece.job.passes) == 1:
            if (mixed.layers, mixed.poolings) != (self._layers, self._poolings):
                poolings = [self._poolings.index(name) for name in mixed.poolings]
                layers = [self._layers.index(layer) for layer in mixed.layers]
                selected = selected[:, poolings][:, :, layers]
            return embedded(piece.job.model, selected)
        values = selected.new_zeros(len(group), len(mixed.poolings), len(mixed.layers), selected.shape[-1])
        for name, numbers in needs.items():
            from_layers = [self._layers.index(layer) for layer in numbers]
            to_layers = [mixed.layers.index(layer) for layer in numbers]
            values[:, mixed.poolings.index(name), to_layers] = selected[:, self._poolings.index(name), from_layers]
        return values


def _by_piece(members: Sequence[tuple[Piece, int]], group: list[int]) -> Iterator[tuple[Piece, list[int], list[int]]]:
    """Iterate over the pieces of a group with the positions of their rows in it, and the rows."""
    pieces: dict[int, tuple[Piece, list[int], list[int]]] = {}
    for place, member in enumerate(group):
        piece, row = members[member]
        entry = pieces.setdefault(id(piece), (piece, [], []))
        entry[1].append(place)
        entry[2].append(row)
    yield from pieces.values()
