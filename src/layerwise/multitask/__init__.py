"""Training one encoder on several supervised tasks: recipes, rows, losses, schedules and seeds.

What a finished training predicts is in `layerwise.predict`.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.multitask.recipe import load_multitask_recipe, multitask_toml, parse_multitask_recipe
    from layerwise.multitask.rows import TrainingTask, load_training_task
    from layerwise.multitask.run import train_multitask
    from layerwise.multitask.seeds import train_multitask_seeds
    from layerwise.multitask.settings import MixingSettings, MultitaskDev, MultitaskModel, MultitaskRecipe

__getattr__, __dir__, __all__ = door(__name__, __file__)
