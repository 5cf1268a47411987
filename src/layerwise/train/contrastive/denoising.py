"""Template denoising (PromptBERT, Jiang et al. 2022): subtracts the views of the empty prompt from those of its texts.

The views of the prompt's tokens without a text, at their positions around a text, depend only on the text's length. So
one template row per length in the batch is encoded together with the texts, with gradient and dropout: these are few
rows if texts of similar length are batched, while a separate pass would take a third of the step's time. The trained
model does not denoise; the authors' code can do either.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from layerwise.encoder import LayerEncoder, LayerReader, PromptTokenizer, read_views
from layerwise.errors import InputError
from layerwise.train.contrastive.prompted import which_prompt

_TOLERANCE = 1e-4
_STEP = 4  # the number of templates of a batch is padded to a multiple of this, so that there are few shapes
_NONE = -1  # padding among template numbers


class Denoiser(nn.Module):
    """Holds the templates of one or two prompts for texts of every length, and subtracts their views.

    Args:
        encoder: The encoder, which must support position ids; this is checked.
        tokenizers: One for each prompt; they determine the maximum length of a text.
    """

    tokens: Tensor
    mask: Tensor
    places: Tensor
    positions: Tensor

    def __init__(self, encoder: LayerEncoder, tokenizers: Sequence[PromptTokenizer]) -> None:
        super().__init__()
        first = _first_position(encoder, tokenizers[0])
        tables = [_table(tokenizer, first) for tokenizer in tokenizers]
        longest = max(tokens.shape[1] for tokens, _, _ in tables)
        pad_id = int(encoder.tokenizer.pad_token_id or 0)
        columns = {
            "tokens": [_padded(tokens, longest, pad_id) for tokens, _, _ in tables],
            "mask": [_padded(torch.ones_like(tokens), longest, 0) for tokens, _, _ in tables],
            "positions": [_padded(positions, longest, first) for _, positions, _ in tables],
            "places": [places for _, _, places in tables],
        }
        for name, parts in columns.items():
            self.register_buffer(name, torch.cat(parts), persistent=False)
        self.first = first
        self.counts = [len(tokens) for tokens, _, _ in tables]  # number of text lengths, for each prompt
        self.sizes = [tokens.shape[1] for tokens, _, _ in tables]  # number of tokens of each prompt
        self.to(encoder.device)
        _check_positions(encoder, self, tokenizers[0])

    def templates_of(self, mask: Tensor, places: Tensor) -> Tensor:
        """Return the template numbers of a batch for `read`: one per distinct text length, padded.

        The batch must be on the CPU, as this would synchronise with a GPU.
        """
        rows: Tensor = self._rows(mask, which_prompt(places)).unique()  # type: ignore[no-untyped-call]
        return nn.functional.pad(rows, (0, -len(rows) % _STEP), value=_NONE)

    def read(
        self,
        reader: LayerReader,
        tokens: Tensor,
        mask: Tensor,
        layers: Sequence[int],
        poolings: Sequence[str],
        places: Tensor,
        templates: Tensor | None = None,
    ) -> Tensor:
        """Return the views of texts minus those of their templates, from one pass: (n, poolings, layers, width)

        Args:
            reader: Reads the model's layers.
            tokens: Ids of the texts in the prompt, (n, t).
            mask: 1 for tokens, 0 for padding, (n, t).
            layers: The layers of the views.
            poolings: The poolings of the views.
            places: The pooled tokens, (n, 3); with two prompts, also the number of the prompt, (n, 4).
            templates: The result of `templates_of`; by default the templates of all lengths that fit into t.
        """
        numbers = self._all_within(mask.shape[1]) if templates is None else templates
        all_views = read_views(
            reader,
            _joined(tokens, self.tokens[numbers], 0),
            _joined(mask, self.mask[numbers], 0),
            layers,
            poolings,
            torch.cat([places[:, :3], self.places[numbers]]),
            positions=_joined(self._positions(tokens), self.positions[numbers], self.first),
        )
        views, template_views = all_views[: len(tokens)], all_views[len(tokens) :]
        with torch.autocast(views.device.type, enabled=False):
            # as a product, whose gradient is deterministic; on a GPU that of indexing is not
            selection = (self._rows(mask, which_prompt(places)).unsqueeze(1) == numbers).to(views.dtype)
            return views - (selection @ template_views.flatten(1)).view_as(views)

    def _positions(self, tokens: Tensor) -> Tensor:
        """Return the position ids of texts that start in the first column."""
        return (self.first + torch.arange(tokens.shape[1], device=tokens.device)).expand_as(tokens)

    def _all_within(self, length: int) -> Tensor:
        """Return the template numbers of all texts with at most this many tokens, prompt included."""
        rows, start = [], 0
        for count, size in zip(self.counts, self.sizes, strict=True):
            rows.append(start + torch.arange(min(count, max(1, length - size + 1)), device=self.tokens.device))
            start += count
        return torch.cat(rows)

    def _rows(self, mask: Tensor, prompts: Tensor | None) -> Tensor:
        """Return the template number of each text's length. (Arithmetic with the prompt's number, 0 or 1: a CUDA graph
        allows no new tensor of numbers.)
        """
        which = torch.zeros_like(mask[:, 0]) if prompts is None else prompts
        start, size, count = (
            first + which * (last - first)
            for first, last in ((0, self.counts[0]), (self.sizes[0], self.sizes[-1]), (self.counts[0], self.counts[-1]))
        )
        return start + torch.minimum((mask.sum(1) - size).clamp(min=0), count - 1)


def _table(tokenizer: PromptTokenizer, first: int) -> tuple[Tensor, Tensor, Tensor]:
    """Build ids and positions, (lengths, tokens of the template), and places, (lengths, 3)."""
    template = tokenizer.template()
    size = len(template.ids)
    lengths = torch.arange(tokenizer.max_length - size + 1).unsqueeze(1)
    numbers = torch.arange(size)
    positions = first + numbers + lengths * (numbers >= template.before)
    places = torch.tensor([[0, size, template.mask]]).expand(len(lengths), -1)
    return torch.tensor([template.ids]).expand(len(lengths), -1), positions, places


def _joined(texts: Tensor, templates: Tensor, value: int) -> Tensor:
    """(n, t) and (k, s) -> (n + k, t), or s where that is more"""
    length = max(texts.shape[1], templates.shape[1])
    return torch.cat([_padded(texts, length, value), _padded(templates, length, value)])


def _padded(rows: Tensor, length: int, value: int) -> Tensor:
    return nn.functional.pad(rows, (0, length - rows.shape[1]), value=value)


def _first_position(encoder: LayerEncoder, tokenizer: PromptTokenizer) -> int:
    """Return the first position id: 0, or padding + 1 (RoBERTa); raise for a model without position ids."""
    tokens = torch.tensor(tokenizer(["a"]).ids, device=encoder.device)
    numbers = torch.arange(tokens.shape[1], device=encoder.device).unsqueeze(0)
    plain = _last_layer(encoder, tokens, None)
    after_padding = int(encoder.tokenizer.pad_token_id or 0) + 1
    has_room = after_padding + tokens.shape[1] <= getattr(encoder.model.config, "max_position_embeddings", 0)
    for first in (0, after_padding) if has_room else (0,):
        try:
            with_positions = _last_layer(encoder, tokens, numbers + first)
        except TypeError:
            break
        if torch.allclose(plain, with_positions, atol=_TOLERANCE):
            return first
    raise _no_positions(encoder)


def _check_positions(encoder: LayerEncoder, denoiser: Denoiser, tokenizer: PromptTokenizer) -> None:
    """Raise for a model that ignores position ids, whose templates would be the same for all lengths."""
    before = tokenizer.template().before
    ends = torch.stack([denoiser.tokens[0], denoiser.tokens[0]]), denoiser.positions[[0, denoiser.counts[0] - 1]]
    near, far = _last_layer(encoder, *ends)
    if 0 < before < denoiser.sizes[0] and torch.allclose(near, far, atol=_TOLERANCE):
        raise _no_positions(encoder)


def _last_layer(encoder: LayerEncoder, tokens: Tensor, positions: Tensor | None) -> Tensor:
    """Return the last layer's means, (n, width), without dropout."""
    training = encoder.model.training
    encoder.model.eval()
    try:
        with torch.no_grad():
            mask = torch.ones_like(tokens)
            return read_views(encoder.reader, tokens, mask, [encoder.depth], ["mean"], positions=positions)[:, 0, 0]
    finally:
        encoder.model.train(training)


def _no_positions(encoder: LayerEncoder) -> InputError:
    return InputError(f"[model] denoise: {encoder.name} does not take the positions of tokens; leave denoise out")
