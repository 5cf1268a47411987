"""The model card data that sentence-transformers' evaluators expect of a model, to record their scores."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerwise.model.layer_model import LayerModel


class EvaluationRecord:
    """The scores that evaluators reported, by evaluator; under the names of sentence-transformers' model card data."""

    def __init__(self, model: "LayerModel") -> None:
        self._model = model
        self.eval_results_dict: dict[Any, dict[str, Any]] = {}

    @property
    def base_model(self) -> str:
        """A unique name, as sentence-transformers caches mined embeddings by it."""
        return f"{self._model.encoder.name} {self._model.digest()}"

    def set_evaluation_metrics(
        self,
        evaluator: Any,
        metrics: dict[str, Any],
        epoch: int = 0,  # noqa: ARG002 - the host's contract
        step: int = 0,  # noqa: ARG002
    ) -> None:
        """Keep the scores of an evaluator."""
        self.eval_results_dict[evaluator] = dict(metrics)
