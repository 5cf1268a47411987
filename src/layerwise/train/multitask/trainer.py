"""The trainer of multitask training, with a separate learning rate for learned task weights."""

from typing import Any

from layerwise.train.loop.trainer import BaseTrainer
from layerwise.train.multitask.student import MultitaskStudent


class MultitaskTrainer(BaseTrainer):
    """Trains a student on several tasks.

    Args:
        arguments: Arguments of `BaseTrainer`.
        learned_rate: The learning rate of learned weights, which have no weight decay.
        options: Options of `BaseTrainer`.
    """

    student: MultitaskStudent

    def __init__(self, *arguments: Any, learned_rate: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.learned_rate = learned_rate

    def log(self, logs: dict[str, float], *arguments: Any, **options: Any) -> None:
        """Log the learned weights with the losses."""
        learned = self.student.learned
        if learned is not None and "loss" in logs:
            logs |= {
                f"weight_{name}": weight for name, weight in zip(self.student.weights, learned.weights, strict=True)
            }
        super().log(logs, *arguments, **options)

    def create_optimizer(self, *arguments: Any, **options: Any) -> Any:
        """Create the optimiser with the learned weights in a separate group without weight decay."""
        is_new = self.optimizer is None
        optimiser = super().create_optimizer(*arguments, **options)
        learned = [weight for name, weight in self.student.named_parameters() if name.startswith("learned.")]
        if learned and is_new:
            learned_ids = set(map(id, learned))
            for group in optimiser.param_groups:
                group["params"] = [weight for weight in group["params"] if id(weight) not in learned_ids]
            optimiser.add_param_group({"params": learned, "lr": self.learned_rate, "weight_decay": 0.0})
        return optimiser
