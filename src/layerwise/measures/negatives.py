"""Which layer is the best negative: finished SSCL trainings that differ in nothing else (SSCL, figure 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from layerwise.encoder import resolve_layer
from layerwise.errors import InputError
from layerwise.files import read_json
from layerwise.measures.measure import Measured, Row

RESULT = "result.json"
_OBJECTIVE = "sscl"
_SETTINGS = ("data", "model", "train", "dev")


@dataclass(frozen=True)
class NegativeChoice:
    """Trainings with the same layers as negatives, or with none: their scores by seed."""

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
class LayerNegatives(Measured):
    """What each choice of negatives reached, from low layers to high; `score` says which score it is."""

    score: str
    choices: tuple[NegativeChoice, ...]

    @property
    def single(self) -> tuple[NegativeChoice, ...]:
        """Those of one layer each."""
        return tuple(choice for choice in self.choices if len(choice.layers) == 1)

    @property
    def without(self) -> NegativeChoice | None:
        """The training without layer negatives, if it was given."""
        return next((choice for choice in self.choices if not choice.layers), None)

    def rows(self) -> list[Row]:
        """A row for each choice."""
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
class _Finished:
    """One finished training."""

    folder: Path
    facts: Mapping[str, Any]

    @property
    def objectives(self) -> dict[str, Any]:
        """Settings by the objective's name, without the layers in question."""
        terms = {term["name"]: dict(term) for term in self.facts["recipe"]["objectives"]}
        terms.get(_OBJECTIVE, {}).pop("layers", None)
        return terms

    @property
    def settings(self) -> dict[str, Any]:
        """All others, such as "train.batch_size"."""
        recipe = self.facts["recipe"]
        return {f"{table}.{key}": value for table in _SETTINGS for key, value in recipe[table].items()}

    @property
    def layers(self) -> tuple[int, ...]:
        """The negatives', counted from 0."""
        given = [term["layers"] for term in self.facts["recipe"]["objectives"] if term["name"] == _OBJECTIVE]
        numbers = [number for layers in given for number in layers]
        if all(number >= 0 for number in numbers):
            return tuple(sorted(numbers))
        return tuple(sorted(resolve_layer(number, self._depth()) for number in numbers))

    @property
    def scores(self) -> dict[str, float]:
        """By name: averages of test suites, then test tasks, then the dev score."""
        facts, dev = self.facts, self.facts.get("dev") or {}
        found = {f"average of {name}, test": score for name, score in (facts.get("averages") or {}).items()}
        found |= {f"{name}, test": score for name, score in (facts.get("scores") or {}).items()}
        found |= {f"best dev score, {dev['task']}": dev["best"]} if dev else {}
        return {name: score for name, score in found.items() if score is not None}

    def _depth(self) -> int:
        """The encoder's, which is certain only where the saved model has all of its blocks."""
        file = self.folder / "model" / "layerwise.json"
        blocks = read_json(file).get("blocks") or {} if file.is_file() else {}
        if not blocks or blocks["kept"] != blocks["of"]:
            raise InputError(
                f"{self.folder}: its negatives are counted from the last layer, and no whole model is there to say "
                "which that is; train with layers counted from 0"
            )
        return int(blocks["of"])


def layer_negatives(folders: Sequence[str | Path]) -> LayerNegatives:
    """The scores of finished trainings by the layers that were their negatives.

    A folder of several seeds stands for all of them, and trainings with the same layers count as seeds. Averages of
    tests are taken where every training has them, then a test's, then the dev score.
    """
    runs = [run for folder in folders for run in _finished(Path(folder).expanduser())]
    if not any(_OBJECTIVE in run.objectives for run in runs):
        raise InputError("none of the trainings has the objective 'sscl'; give some with different layers as negatives")
    _check_alike(runs)
    score = next((name for name in runs[0].scores if all(name in run.scores for run in runs)), None)
    if score is None:
        raise InputError("the trainings have no score in common; train with a dev task, or test all on the same tasks")
    found: dict[tuple[int, ...], dict[int, float]] = {}
    for run in runs:
        own, seed = found.setdefault(run.layers, {}), int(run.facts["seed"])
        if seed in own:
            raise InputError(f"{run.folder}: seed {seed} with the same negatives was given already; leave one out")
        own[seed] = run.scores[score]
    return LayerNegatives(score, tuple(NegativeChoice(layers, found[layers]) for layers in sorted(found)))


def _finished(folder: Path) -> list[_Finished]:
    files = sorted(folder.glob(f"seed-*/{RESULT}")) or [folder / RESULT]
    if not files[0].is_file():
        raise InputError(f"{folder}: no {RESULT} there; give the folder of a training that is finished")
    found = [_Finished(file.parent, read_json(file)) for file in files]
    for run in found:
        if not {"recipe", "seed"} <= set(run.facts) or "objectives" not in run.facts["recipe"]:
            raise InputError(f"{run.folder / RESULT}: is not of `layerwise train`; give the folder of such a training")
    return found


def _check_alike(runs: Sequence[_Finished]) -> None:
    """Scores speak of the layers only where nothing else differs; without negatives the objectives may be others."""
    for kind in (True, False):
        same = [run for run in runs if (_OBJECTIVE in run.objectives) is kind]
        for run in same[1:]:
            _refuse(run, same[0], _different(run.objectives, same[0].objectives))
    for run in runs[1:]:
        _refuse(run, runs[0], _different(run.settings, runs[0].settings))


def _different(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return [name for name in dict.fromkeys([*one, *other]) if one.get(name) != other.get(name)]


def _refuse(run: _Finished, first: _Finished, names: Sequence[str]) -> None:
    if names:
        raise InputError(
            f"{run.folder} differs from {first.folder} in {', '.join(names)}, so that their scores say nothing of the "
            "layers; give trainings that are alike but for the layers of sscl"
        )
