"""The cost of an embedding: its forward passes, with the blocks and tokens of each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from layerwise.encoder import PLAIN, LayerEncoder, Prompt, by_prompt, parse_pooling
from layerwise.mixes import Mix

_MAX_TEXTS = 200  # whose tokens are counted


@dataclass(frozen=True)
class Cost:
    """The forward passes that an embedding needs, one per prompt, with the blocks and tokens of each.

    Args:
        depth: The number of blocks of the model.
        blocks: The number of blocks of each pass.
        tokens: The mean number of tokens of each pass.
        plain_tokens: The mean number of tokens of a sentence without a prompt.
    """

    depth: int
    blocks: tuple[int, ...]
    tokens: tuple[float, ...]
    plain_tokens: float

    @property
    def passes(self) -> float:
        """The blocks in units of passes through the whole model, which `max_cost` limits."""
        return sum(self.blocks) / self.depth

    @property
    def work(self) -> float:
        """Tokens times blocks, relative to a whole pass of the sentence without a prompt; about the ratio of FLOPs."""
        total = sum(blocks * tokens for blocks, tokens in zip(self.blocks, self.tokens, strict=True))
        return total / (self.depth * self.plain_tokens)

    def as_dict(self) -> dict[str, float | int]:
        """For JSON."""
        return {
            "forward_passes": len(self.blocks),
            "blocks": sum(self.blocks),
            "tokens": round(sum(self.tokens), 2),
            "passes": round(self.passes, 4),
            "work": round(self.work, 4),
        }

    def __str__(self) -> str:
        passes = f"{len(self.blocks)} passes" if len(self.blocks) > 1 else "1 pass"
        return (
            f"{passes}, {sum(self.blocks)} blocks ({self.depth} in the model), {self.work:.2f} x the last layer's work"
        )


@dataclass(frozen=True)
class Prices:
    """The mean number of tokens of a sentence in each prompt, from which the cost of any mix follows."""

    depth: int
    tokens: Mapping[Prompt, float] = field(default_factory=dict)

    def of(self, needs: Mapping[str, tuple[int, ...]]) -> Cost:
        """The cost of the layers that each pooling needs."""
        blocks: dict[Prompt, int] = {}
        for pooling, layers in needs.items():
            prompt = parse_pooling(pooling).prompt
            blocks[prompt] = max(blocks.get(prompt, 0), *layers)
        tokens = tuple(self.tokens.get(prompt, 1.0) for prompt in blocks)
        return Cost(self.depth, tuple(blocks.values()), tokens, self.tokens.get(PLAIN, 1.0))

    def of_mix(self, mix: Mix) -> Cost:
        """The cost of a mix."""
        return self.of(mix.resolve(self.depth).needs)


def prices_of(encoder: LayerEncoder, poolings: Iterable[str], texts: Sequence[str]) -> Prices:
    """Count the tokens of texts in the prompts of these poolings and without a prompt."""
    sample = list(texts[:_MAX_TEXTS])
    tokens = {}
    for prompt in {PLAIN: [], **by_prompt(poolings)}:
        counts = encoder.token_counts(sample, prompt)
        tokens[prompt] = sum(counts) / max(1, len(counts))
    return Prices(encoder.depth, tokens)
