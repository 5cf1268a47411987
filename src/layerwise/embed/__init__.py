"""Embeds any number of rows into shards; resumes after an interruption."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.embed.bad_rows import BadRow
    from layerwise.embed.job import RECORDED_OPTIONS, EmbedJob, ModelChoice, split_out
    from layerwise.embed.record_paths import is_local, portable, resolved
    from layerwise.embed.run import EmbedResult, run_embed
    from layerwise.embed.vectors import VectorBatch, VectorFiles
    from layerwise.embed.verify import Verification, verify_vectors

__getattr__, __dir__, __all__ = door(__name__, __file__)
