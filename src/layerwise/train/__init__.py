"""Training: one loop (`loop`) over jobs of two kinds, contrastive and multitask, described by recipes.

>>> from layerwise.train import ContrastiveJob, MultitaskJob, load_multitask_recipe, load_recipe, train, train_seeds
>>> job = ContrastiveJob(load_recipe("small-simcse"), encoder="my-encoder", data="data")  # doctest: +SKIP
>>> train(job, "run").model.encode(["A sentence."])  # doctest: +SKIP
>>> job = MultitaskJob(load_multitask_recipe("tasks.toml"), encoder="my-encoder")  # doctest: +SKIP
>>> train_seeds(job, "run", seeds=(0, 1)).summary["dev"]["overall"]  # doctest: +SKIP
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.train.contrastive.corpus import Corpus
    from layerwise.train.contrastive.job import ContrastiveJob
    from layerwise.train.contrastive.load import read_corpus
    from layerwise.train.contrastive.settings import (
        RECIPES,
        DataSettings,
        DevSettings,
        ModelSettings,
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
    from layerwise.train.loop.settings import OptimiserSettings
    from layerwise.train.loop.summary import format_spread
    from layerwise.train.multitask.job import MultitaskJob
    from layerwise.train.multitask.rows import TrainingTask, load_training_task
    from layerwise.train.multitask.settings import (
        MULTITASK_RECIPES,
        MixingSettings,
        MultitaskDev,
        MultitaskModel,
        MultitaskRecipe,
        load_multitask_recipe,
        multitask_toml,
        parse_multitask_recipe,
    )
    from layerwise.train.suggestion import Suggestion, pairs_task, suggest

__getattr__, __dir__, __all__ = door(__name__, __file__)
