"""The tasks of a saved model: tasks.json (settings, classes) and tasks/NAME.safetensors (a head's weights)."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from layerwise.errors import LayerwiseError, ModelError
from layerwise.model.card import cell
from layerwise.multitask.heads import TaskHead, task_head
from layerwise.multitask.task import TaskSettings
from layerwise.train.recipe_format import settings_of

TASKS = "tasks.json"
_FORMAT = 1


def write_tasks(folder: Path, heads: Mapping[str, TaskHead], labels: Mapping[str, tuple[str, ...]]) -> None:
    """Into a model's folder; its card says what can be predicted, and how."""
    (folder / "tasks").mkdir()
    for name, head in heads.items():
        weights = {key: tensor.detach().cpu().contiguous() for key, tensor in head.state_dict().items()}
        save_file(weights, folder / "tasks" / f"{name}.safetensors")
    tasks = [{"labels": labels[name], "settings": _facts(head.settings)} for name, head in heads.items()]
    text = json.dumps({"format": _FORMAT, "tasks": tasks}, indent=2, ensure_ascii=False)
    (folder / TASKS).write_text(text, encoding="utf-8")
    card = folder / "README.md"
    before, use, after = card.read_text(encoding="utf-8").partition("## Use\n")
    card.write_text(before + _card_section(heads, labels) + use + after, encoding="utf-8")


def _card_section(heads: Mapping[str, TaskHead], labels: Mapping[str, tuple[str, ...]]) -> str:
    rows = []
    for name, head in heads.items():
        task, (low, high) = head.settings, head.settings.scale
        predicts = ", ".join(labels[name]) or f"a number from {low:g} to {high:g}"
        rows.append(f"| {name} | {task.kind}: {cell(', '.join(task.columns))} | {cell(predicts)} |\n")
    return f"""## Tasks

| task | takes | predicts |
|---|---|---|
{"".join(rows)}
```bash
layerwise predict "path or name" INPUT.csv --task {next(iter(heads))} -o OUT.csv
```

"""


def read_tasks(folder: Path, width: int) -> tuple[dict[str, TaskHead], dict[str, tuple[str, ...]]]:
    """Heads for embeddings of this width, and classes, by the tasks' names; a damaged folder is one error."""
    path = folder / TASKS
    if not path.is_file():
        raise ModelError(f"{folder}: no {TASKS}, so it has no tasks to predict; train one with `layerwise multitask`")
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts["format"] != _FORMAT:
            raise ModelError(f"{path}: its format is {facts['format']}, this version reads {_FORMAT}; update layerwise")
        found = [_read(folder, task, width) for task in facts["tasks"]]
        names = [head.settings.name for head, _ in found]
        if len(set(names)) < len(names):
            raise ValueError(f"two tasks have one name: {', '.join(names)}")
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, LayerwiseError):
            said = str(error)
            raise ModelError(said if said.startswith(str(folder)) else f"{path}: {said}") from error
        raise ModelError(f"{path}: damaged: {error}; save the model again") from error
    return {head.settings.name: head for head, _ in found}, {head.settings.name: names for head, names in found}


def _read(folder: Path, task: Mapping[str, Any], width: int) -> tuple[TaskHead, tuple[str, ...]]:
    if not isinstance(task["settings"], dict):
        raise ValueError(f"settings {task['settings']!r} is no table")
    given = {key: value for key, value in task["settings"].items() if value is not None}
    settings: TaskSettings = settings_of(TaskSettings, given, str(folder / TASKS), "task")
    labels = _labels(task["labels"], settings)
    head = task_head(settings, width, settings.outputs_for(len(labels)), seed=0)
    path = folder / "tasks" / f"{settings.name}.safetensors"
    try:
        head.load_state_dict(load_file(path))
    except (OSError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path}: can't be read: {reason}; the folder is incomplete, save it again") from error
    except RuntimeError as error:
        raise ModelError(f"{path}: its weights are not those of the head in {TASKS}; save the folder again") from error
    return head.eval(), labels


def _labels(found: Any, settings: TaskSettings) -> tuple[str, ...]:
    """The classes, checked: a text each, none twice, as many as the task has."""
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"labels {found!r} of task {settings.name!r} is no list of texts")
    if len(set(found)) < len(found):
        raise ValueError(f"labels {found!r} of task {settings.name!r} has one twice")
    given = settings.label_names or settings.labels
    if given and len(found) != len(given):
        raise ValueError(f"task {settings.name!r} has {len(found)} labels, its settings {len(given)}")
    if settings.kind != "similarity":
        settings.check_classes(len(found))
    elif found:
        raise ValueError(f"labels {found!r} of task {settings.name!r}, whose answers are numbers")
    return tuple(found)


def _facts(settings: TaskSettings) -> dict[str, Any]:
    """Without the folder that its file lies in, which is nobody's business."""
    return asdict(settings) | {"file": Path(settings.file).name}
