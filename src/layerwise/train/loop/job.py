"""The interface of jobs: what a kind of training provides for the common training loop."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from layerwise.encoder import LayerEncoder
from layerwise.errors import InputError
from layerwise.evaluate import Evaluation
from layerwise.extras import require
from layerwise.train.loop.host import default_device
from layerwise.train.loop.settings import BaseRecipe
from layerwise.train.loop.student import BaseStudent
from layerwise.train.loop.summary import Result
from layerwise.train.loop.trainer import BaseTrainer, Scorer
from layerwise.train.recipes.format import RecipeFormat

R = TypeVar("R", bound=BaseRecipe)
S = TypeVar("S", bound=BaseStudent)
M = TypeVar("M")


class Batches(Protocol):
    """Padded batches in an order that depends on seed and epoch."""

    def __iter__(self) -> Iterator[Any]:
        """The batches of an epoch, or of all of them."""

    def resume_at(self, step: int) -> None:
        """Start the next iteration after this many steps of training."""


@dataclass(frozen=True, kw_only=True)
class Training(Generic[S]):
    """The training of one seed, ready to start.

    Attributes:
        student: The module that is trained.
        batches: The training batches.
        scorer: Returns the student's current dev metrics; None: no evaluation during training.
        trainer: Creates the trainer: `BaseTrainer`, or a subclass with the options of this kind of training.
    """

    student: S
    batches: Batches
    scorer: Scorer | None = None
    trainer: Callable[..., BaseTrainer] = BaseTrainer


class Job(ABC, Generic[R, S, M]):
    """A recipe with its data. `train` trains it with one seed, `train_seeds` with several.

    The loop calls, in this order: `check` and `prepare` once, `build` for each seed, then `data_facts`, `score_facts`
    and `model` when that seed is trained; `train_seeds` also calls `prepare_test` before the first seed, `evaluate` and
    `save` after each.

    Args:
        recipe: The settings.
        encoder: A folder or hub name instead of the recipe's; an encoder object is trained in place.
    """

    formats: ClassVar[RecipeFormat[Any]]

    def __init__(self, recipe: R, *, encoder: LayerEncoder | str | None = None) -> None:
        require("train", "training", "accelerate", "tomli_w")
        self.recipe = recipe.replaced(reached="")  # it is the score of another run
        if isinstance(encoder, str):
            self.recipe = self.recipe.replaced(model=recipe.model.replaced(encoder=encoder))
        self.recipe = self.recipe.with_absolute_paths()
        self._encoder = encoder if isinstance(encoder, LayerEncoder) else None
        self._is_prepared = False

    def check(self) -> None:
        """Raise for a recipe that cannot be trained, before any data is read."""
        if self._encoder is None and not self.recipe.model.encoder:
            raise InputError(f"recipe {self.recipe.name!r} names no encoder; give one with --model")

    def prepare(self) -> None:
        """Read the data of all seeds once, so that errors are raised before a model is loaded."""
        if not self._is_prepared:
            self.read_data()
            self._is_prepared = True

    def load_encoder(self, device: str | None = None) -> LayerEncoder:
        """Load the encoder with its pretrained weights, or return the encoder object of the job."""
        return self._encoder or LayerEncoder(self.recipe.model.encoder, device=device or default_device())

    @abstractmethod
    def read_data(self) -> None:
        """Read training and dev rows."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """The digest of the training rows: a training is not resumed with other rows."""

    @property
    @abstractmethod
    def metric(self) -> str | None:
        """The dev metric that selects the best step; None keeps the last step's weights."""

    @property
    def epochs(self) -> float:
        """The number of epochs, known once the data is read."""
        epochs = self.recipe.train.epochs
        return float(self.automatic_epochs if epochs == "auto" else epochs)

    @property
    def automatic_epochs(self) -> float:
        """The number of epochs for "auto"."""
        return 1

    @abstractmethod
    def build(self, encoder: LayerEncoder, *, seed: int) -> Training[S]:
        """Build student, batches and scorer for one seed."""

    @abstractmethod
    def data_facts(self, training: Training[S]) -> dict[str, Any]:
        """Return facts about the data for results."""

    @abstractmethod
    def score_facts(self, training: Training[S], state: Any) -> dict[str, Any]:
        """Return facts about the scores during training for results; `state` is the trainer's."""

    @abstractmethod
    def model(self, training: Training[S], facts: Mapping[str, Any]) -> M:
        """Return the trained model, with its facts for the model card."""

    def prepare_test(self) -> None:
        """Find the test tasks, before anything is trained."""

    def evaluate(self, model: M) -> Evaluation | None:  # noqa: ARG002
        """Evaluate the trained model on the test tasks; None without any."""
        return None

    @abstractmethod
    def save(self, model: M, facts: Mapping[str, Any], folder: Path) -> None:
        """Save the model with its final facts, replacing an existing one."""

    @abstractmethod
    def summary(self, results: Sequence[Result]) -> dict[str, Any]:
        """Compute means and standard deviations over the results of several seeds."""
