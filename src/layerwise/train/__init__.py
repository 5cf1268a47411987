"""Training: one loop (`loop`) over jobs of two kinds, contrastive and multitask, described by recipes.

>>> from layerwise.train import ContrastiveJob, load_recipe, train
>>> job = ContrastiveJob(load_recipe("small-simcse"), encoder="my-encoder", data="data")  # doctest: +SKIP
>>> train(job, "run").model.encode(["A sentence."])  # doctest: +SKIP
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.train.contrastive.corpus import Corpus as Corpus
    from layerwise.train.contrastive.corpus import read_corpus as read_corpus
    from layerwise.train.contrastive.job import ContrastiveJob as ContrastiveJob
    from layerwise.train.contrastive.settings import RECIPES as RECIPES
    from layerwise.train.contrastive.settings import DataSettings as DataSettings
    from layerwise.train.contrastive.settings import DevSettings as DevSettings
    from layerwise.train.contrastive.settings import Recipe as Recipe
    from layerwise.train.contrastive.settings import load_recipe as load_recipe
    from layerwise.train.contrastive.settings import parse_recipe as parse_recipe
    from layerwise.train.contrastive.settings import recipe_toml as recipe_toml
    from layerwise.train.contrastive.terms import TERMS as TERMS
    from layerwise.train.loop.callbacks import read_metrics as read_metrics
    from layerwise.train.loop.job import Job as Job
    from layerwise.train.loop.run import Trained as Trained
    from layerwise.train.loop.run import train as train
    from layerwise.train.loop.seeds import SeedsResult as SeedsResult
    from layerwise.train.loop.seeds import train_seeds as train_seeds
    from layerwise.train.loop.settings import ModelSettings as ModelSettings
    from layerwise.train.loop.settings import OptimiserSettings as OptimiserSettings
    from layerwise.train.loop.summary import format_spread as format_spread

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "RECIPES": ".contrastive.settings",
        "TERMS": ".contrastive.terms",
        "ContrastiveJob": ".contrastive.job",
        "Corpus": ".contrastive.corpus",
        "DataSettings": ".contrastive.settings",
        "DevSettings": ".contrastive.settings",
        "Job": ".loop.job",
        "ModelSettings": ".loop.settings",
        "OptimiserSettings": ".loop.settings",
        "Recipe": ".contrastive.settings",
        "SeedsResult": ".loop.seeds",
        "Trained": ".loop.run",
        "format_spread": ".loop.summary",
        "load_recipe": ".contrastive.settings",
        "parse_recipe": ".contrastive.settings",
        "read_corpus": ".contrastive.corpus",
        "read_metrics": ".loop.callbacks",
        "recipe_toml": ".contrastive.settings",
        "train": ".loop.run",
        "train_seeds": ".loop.seeds",
    },
)
