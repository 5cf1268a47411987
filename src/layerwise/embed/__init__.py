"""Any number of rows to shards of embeddings, resumable after any kind of stop."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.embed.job import EmbedJob as EmbedJob
    from layerwise.embed.job import ModelChoice as ModelChoice
    from layerwise.embed.job import split_out as split_out
    from layerwise.embed.run import EmbedResult as EmbedResult
    from layerwise.embed.run import run_embed as run_embed

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "EmbedJob": ".job",
        "EmbedResult": ".run",
        "ModelChoice": ".job",
        "run_embed": ".run",
        "split_out": ".job",
    },
)
