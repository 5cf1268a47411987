"""A trained model without its first components: as many as the dev split of STS-B chooses."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

COMPONENTS = (0, 1, 2, 4, 8, 16)


def less_components(model: Any, texts: Sequence[str], dev: Path, *, source: str) -> tuple[Any, dict[str, Any]]:
    """The model without its first components, fitted on texts, and the scores of a dev task by their number."""
    from layerwise.data import find_tasks
    from layerwise.evaluate import LayerSubject, evaluate
    from layerwise.postprocess import FittedOn, RemoveComponents

    embeddings, fitted_on = model.encode(list(texts)), FittedOn.of(texts, source=source)
    models = {0: model} | {
        count: model.with_postprocess(RemoveComponents(count).fit(embeddings, fitted_on=fitted_on))
        for count in COMPONENTS
        if count
    }
    tasks = find_tasks([str(dev)])
    runs = {count: evaluate(LayerSubject(one, cache=False), tasks).runs[0] for count, one in models.items()}
    by_count = {count: next(iter(run.results.values())).score for count, run in runs.items()}
    best = max(by_count, key=by_count.__getitem__)
    return models[best], {"components": best, "dev": by_count}
