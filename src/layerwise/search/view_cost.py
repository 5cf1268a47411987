"""What an embedding costs: passes through the model, blocks and tokens of each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from layerwise.encoder import PLAIN, LayerEncoder, Prompt, by_prompt, parse_pooling
from layerwise.mixes import LayerMix

_SAMPLE = 200  # texts whose tokens are counted


@dataclass(frozen=True)
class Cost:
    """The passes that an embedding needs, one a prompt: how many blocks each runs, over how many tokens.

    Args:
        depth: The model's blocks.
        blocks: Of each pass.
        tokens: Of each pass, the mean over some sentences.
        plain_tokens: Of a sentence without a prompt.
    """

    depth: int
    blocks: tuple[int, ...]
    tokens: tuple[float, ...]
    plain_tokens: float

    @property
    def passes(self) -> float:
        """In passes through all blocks, whatever their tokens: what `max_cost` limits."""
        return sum(self.blocks) / self.depth

    @property
    def work(self) -> float:
        """Tokens times blocks, in passes of the sentence alone through all blocks: nearly the share of FLOPs."""
        spent = sum(blocks * tokens for blocks, tokens in zip(self.blocks, self.tokens, strict=True))
        return spent / (self.depth * self.plain_tokens)

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
        many = f"{len(self.blocks)} passes" if len(self.blocks) > 1 else "1 pass"
        return f"{many}, {sum(self.blocks)} blocks ({self.depth} in the model), {self.work:.2f} x the last layer's work"


@dataclass(frozen=True)
class Prices:
    """How many tokens a sentence has in each prompt, by which any mix has its cost."""

    depth: int
    tokens: Mapping[Prompt, float] = field(default_factory=dict)

    def of(self, needs: Mapping[str, tuple[int, ...]]) -> Cost:
        """The cost of the layers that are needed of each pooling."""
        blocks: dict[Prompt, int] = {}
        for pooling, layers in needs.items():
            prompt = parse_pooling(pooling).prompt
            blocks[prompt] = max(blocks.get(prompt, 0), *layers)
        tokens = tuple(self.tokens.get(prompt, 1.0) for prompt in blocks)
        return Cost(self.depth, tuple(blocks.values()), tokens, self.tokens.get(PLAIN, 1.0))

    def of_mix(self, mix: LayerMix) -> Cost:
        """The cost of a mix."""
        return self.of(mix.resolve(self.depth).needs)


def prices_of(encoder: LayerEncoder, poolings: Iterable[str], texts: Sequence[str]) -> Prices:
    """The tokens of some texts in the prompts of these poolings, and without any."""
    sample = list(texts[:_SAMPLE])
    tokens = {}
    for prompt in {PLAIN: [], **by_prompt(poolings)}:
        counts = encoder.token_counts(sample, prompt)
        tokens[prompt] = sum(counts) / max(1, len(counts))
    return Prices(encoder.depth, tokens)
