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
    from layerwise.train.multitask.job import MultitaskJob as MultitaskJob
    from layerwise.train.multitask.rows import TrainingTask as TrainingTask
    from layerwise.train.multitask.rows import load_training_task as load_training_task
    from layerwise.train.multitask.settings import MULTITASK_RECIPES as MULTITASK_RECIPES
    from layerwise.train.multitask.settings import MixingSettings as MixingSettings
    from layerwise.train.multitask.settings import MultitaskDev as MultitaskDev
    from layerwise.train.multitask.settings import MultitaskModel as MultitaskModel
    from layerwise.train.multitask.settings import MultitaskRecipe as MultitaskRecipe
    from layerwise.train.multitask.settings import load_multitask_recipe as load_multitask_recipe
    from layerwise.train.multitask.settings import multitask_toml as multitask_toml
    from layerwise.train.multitask.settings import parse_multitask_recipe as parse_multitask_recipe

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "MULTITASK_RECIPES": ".multitask.settings",
        "RECIPES": ".contrastive.settings",
        "TERMS": ".contrastive.terms",
        "ContrastiveJob": ".contrastive.job",
        "Corpus": ".contrastive.corpus",
        "DataSettings": ".contrastive.settings",
        "DevSettings": ".contrastive.settings",
        "Job": ".loop.job",
        "MixingSettings": ".multitask.settings",
        "ModelSettings": ".loop.settings",
        "MultitaskDev": ".multitask.settings",
        "MultitaskJob": ".multitask.job",
        "MultitaskModel": ".multitask.settings",
        "MultitaskRecipe": ".multitask.settings",
        "OptimiserSettings": ".loop.settings",
        "Recipe": ".contrastive.settings",
        "SeedsResult": ".loop.seeds",
        "Trained": ".loop.run",
        "TrainingTask": ".multitask.rows",
        "format_spread": ".loop.summary",
        "load_multitask_recipe": ".multitask.settings",
        "load_recipe": ".contrastive.settings",
        "load_training_task": ".multitask.rows",
        "multitask_toml": ".multitask.settings",
        "parse_multitask_recipe": ".multitask.settings",
        "parse_recipe": ".contrastive.settings",
        "read_corpus": ".contrastive.corpus",
        "read_metrics": ".loop.callbacks",
        "recipe_toml": ".contrastive.settings",
        "train": ".loop.run",
        "train_seeds": ".loop.seeds",
    },
)
