"""Which layer is the best negative: finished SSCL trainings that differ in it alone (SSCL, figure 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from layerwise import plots
from layerwise.encoder import resolve_layer
from layerwise.errors import InputError
from layerwise.files import read_json
from layerwise.measures.measure import Figure, Measure, MeasureValue, Row, Values, never, only_value

RESULT = "result.json"
_OBJECTIVE = "sscl"
_SETTINGS = ("data", "model", "train", "dev")


@dataclass(frozen=True)
class NegativeChoice:
    """Trainings with the same layers as negatives, or without any: their scores by seed."""

    layers: tuple[int, ...]
    scores: Mapping[int, float]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return mean(self.scores.values())

    @property
    def sd(self) -> float | None:
        """Over the seeds (n - 1), from two on."""
        return stdev(self.scores.values()) if len(self.scores) > 1 else None


@dataclass(frozen=True)
class LayerNegatives(MeasureValue):
    """The score of each choice of negatives, from low layers to high; `score` names the score."""

    score: str
    choices: tuple[NegativeChoice, ...]

    @property
    def single(self) -> tuple[NegativeChoice, ...]:
        """Those of one layer each."""
        return tuple(choice for choice in self.choices if len(choice.layers) == 1)

    @property
    def without(self) -> NegativeChoice | None:
        """The training without layer negatives, if any."""
        return next((choice for choice in self.choices if not choice.layers), None)

    def rows(self) -> list[Row]:
        """Return a row per choice."""
        return [
            {"negatives": ", ".join(map(str, choice.layers)) or "none", "mean": choice.mean, "sd": choice.sd}
            | {"seeds": ", ".join(map(str, sorted(choice.scores)))}
            for choice in self.choices
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """Which score it is."""
        return (f"score: {self.score}",)


@dataclass(frozen=True)
class _Training:
    """A finished training."""

    folder: Path
    facts: Mapping[str, Any]

    @property
    def objectives(self) -> dict[str, Any]:
        """Settings by the objective's name, without the layers that are compared."""
        terms = {term["name"]: dict(term) for term in self.facts["recipe"]["objectives"]}
        terms.get(_OBJECTIVE, {}).pop("layers", None)
        return terms

    @property
    def settings(self) -> dict[str, Any]:
        """All other settings, such as "train.batch_size"."""
        recipe = self.facts["recipe"]
        return {f"{table}.{key}": value for table in _SETTINGS for key, value in recipe[table].items()}

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers of the negatives, counted from 0."""
        terms = [term for term in self.facts["recipe"]["objectives"] if term["name"] == _OBJECTIVE]
        numbers = [number for term in terms for number in term["layers"]]
        if all(number >= 0 for number in numbers):
            return tuple(sorted(numbers))
        return tuple(sorted(resolve_layer(number, self._depth()) for number in numbers))

    @property
    def scores(self) -> dict[str, float]:
        """Return scores by name: averages of test suites, then test tasks, then the dev score."""
        facts, dev = self.facts, self.facts.get("dev") or {}
        scores = {f"average of {name}, test": score for name, score in (facts.get("averages") or {}).items()}
        scores |= {f"{name}, test": score for name, score in (facts.get("scores") or {}).items()}
        scores |= {f"best dev score, {dev['task']}": dev["best"]} if dev else {}
        return {name: score for name, score in scores.items() if score is not None}

    def _depth(self) -> int:
        """Return the depth of the encoder, which is known only if the saved model has all blocks."""
        file = self.folder / "model" / "layerwise.json"
        blocks = read_json(file).get("blocks") or {} if file.is_file() else {}
        if not blocks or blocks["kept"] != blocks["of"]:
            raise InputError(
                f"{self.folder}: its negatives are counted from the last layer, and no whole model is there to say "
                "which that is; train with layers counted from 0"
            )
        return int(blocks["of"])


def measure_negatives(folders: Sequence[str | Path]) -> LayerNegatives:
    """The scores of finished trainings by the layers that were their negatives.

    The folder of several seeds stands for all of them, and trainings with the same layers count as seeds. The score is
    the average of a test suite where every training has it, else that of a test task, else the dev score.
    """
    runs = [run for folder in folders for run in _trainings(Path(folder).expanduser())]
    if not any(_OBJECTIVE in run.objectives for run in runs):
        raise InputError("none of the trainings has the objective 'sscl'; give some with different layers as negatives")
    _check_comparable(runs)
    score = next((name for name in runs[0].scores if all(name in run.scores for run in runs)), None)
    if score is None:
        raise InputError("the trainings have no score in common; train with a dev task, or test all on the same tasks")
    scores: dict[tuple[int, ...], dict[int, float]] = {}
    for run in runs:
        by_seed, seed = scores.setdefault(run.layers, {}), int(run.facts["seed"])
        if seed in by_seed:
            raise InputError(f"{run.folder}: seed {seed} with the same negatives was given already; leave one out")
        by_seed[seed] = run.scores[score]
    return LayerNegatives(score, tuple(NegativeChoice(layers, scores[layers]) for layers in sorted(scores)))


def _trainings(folder: Path) -> list[_Training]:
    files = sorted(folder.glob(f"seed-*/{RESULT}")) or [folder / RESULT]
    if not files[0].is_file():
        raise InputError(f"{folder}: no {RESULT} there; give the folder of a training that is finished")
    runs = [_Training(file.parent, read_json(file)) for file in files]
    for run in runs:
        if not {"recipe", "seed"} <= set(run.facts) or "objectives" not in run.facts["recipe"]:
            raise InputError(f"{run.folder / RESULT}: is not of `layerwise train`; give the folder of such a training")
    return runs


def _check_comparable(runs: Sequence[_Training]) -> None:
    """Raise for trainings that differ in more than the layers; those without negatives may have other objectives."""
    for kind in (True, False):
        same = [run for run in runs if (_OBJECTIVE in run.objectives) is kind]
        for run in same[1:]:
            _check_equal(run, same[0], run.objectives, same[0].objectives)
    for run in runs[1:]:
        _check_equal(run, runs[0], run.settings, runs[0].settings)


def _check_equal(run: _Training, first: _Training, settings: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    names = [name for name in {**settings, **expected} if settings.get(name) != expected.get(name)]
    if names:
        raise InputError(
            f"{run.folder} differs from {first.folder} in {', '.join(names)}, so that their scores say nothing of the "
            "layers; give trainings that are alike but for the layers of sscl"
        )


def _by_name(folders: Sequence[str | Path]) -> dict[str, LayerNegatives]:
    return {"": measure_negatives(folders)}


def _plot(values: Values[LayerNegatives], theme: "plots.Theme") -> "plots.Drawing":
    """Draw choices of one layer, with standard deviations if every choice has several seeds."""
    value = only_value(values)
    if not value.single:
        raise InputError("the figure is of trainings with one layer as negatives; several at once are in the table")
    spreads = [choice.sd for choice in value.single if choice.sd is not None]
    return plots.layer_negatives(
        layers=[choice.layers[0] for choice in value.single],
        mean=[choice.mean for choice in value.single],
        sd=spreads if len(spreads) == len(value.single) else None,
        without=None if value.without is None else value.without.mean,
        measure=value.score,
        theme=theme,
    )


MEASURE = Measure(
    "negatives",
    "Layers as negatives",
    "Score by the layers that SSCL took as negatives: where it is highest, they taught most.",
    _by_name,
    of="trainings",
    figures=(Figure(_plot),),
    in_report=never,
)
