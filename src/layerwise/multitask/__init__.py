"""Training one encoder on several supervised tasks: recipes, rows, losses, schedules and seeds.

What a finished training predicts is in `layerwise.predict`.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.multitask.recipe import load_multitask_recipe as load_multitask_recipe
    from layerwise.multitask.recipe import multitask_toml as multitask_toml
    from layerwise.multitask.recipe import parse_multitask_recipe as parse_multitask_recipe
    from layerwise.multitask.rows import TrainingTask as TrainingTask
    from layerwise.multitask.rows import load_training_task as load_training_task
    from layerwise.multitask.run import train_multitask as train_multitask
    from layerwise.multitask.seeds import train_multitask_seeds as train_multitask_seeds
    from layerwise.multitask.settings import MixingSettings as MixingSettings
    from layerwise.multitask.settings import MultitaskDev as MultitaskDev
    from layerwise.multitask.settings import MultitaskModel as MultitaskModel
    from layerwise.multitask.settings import MultitaskRecipe as MultitaskRecipe

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        **dict.fromkeys(("load_multitask_recipe", "multitask_toml", "parse_multitask_recipe"), ".recipe"),
        **dict.fromkeys(("TrainingTask", "load_training_task"), ".rows"),
        "train_multitask": ".run",
        "train_multitask_seeds": ".seeds",
        **dict.fromkeys(("MixingSettings", "MultitaskDev", "MultitaskModel", "MultitaskRecipe"), ".settings"),
    },
)
