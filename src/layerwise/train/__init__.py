"""Training: one loop (`loop`) over jobs of two kinds, contrastive and multitask, described by recipes.

>>> from layerwise.train import ContrastiveJob, load_recipe, train
>>> job = ContrastiveJob(load_recipe("small-simcse"), encoder="my-encoder", data="data")  # doctest: +SKIP
>>> train(job, "run").model.encode(["A sentence."])  # doctest: +SKIP
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.train.contrastive.corpus import Corpus, read_corpus
    from layerwise.train.contrastive.job import ContrastiveJob
    from layerwise.train.contrastive.settings import (
        RECIPES,
        DataSettings,
        DevSettings,
        Recipe,
        load_recipe,
        parse_recipe,
        recipe_toml,
    )
    from layerwise.train.contrastive.terms import TERMS
    from layerwise.train.loop.callbacks import read_metrics
    from layerwise.train.loop.job import Job
    from layerwise.train.loop.run import Trained, train
    from layerwise.train.loop.seeds import SeedsResult, train_seeds
    from layerwise.train.loop.settings import ModelSettings, OptimiserSettings
    from layerwise.train.loop.summary import format_spread

__getattr__, __dir__, __all__ = door(__name__, __file__)
