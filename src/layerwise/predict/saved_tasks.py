"""The tasks of a saved model: tasks.json (declarations, objectives, classes) and tasks/NAME.safetensors (weights)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from layerwise.data import Task
from layerwise.errors import InputError, LayerwiseError, ModelError
from layerwise.files import read_json, write_json
from layerwise.model import cell
from layerwise.predict.heads import TaskHead, task_head
from layerwise.predict.objective import TaskObjective, TaskSetup

TASKS = "tasks.json"
_FORMAT = 2
_REMEDY = "the file lists the tasks of a saved model; save the model again, or train it again"

Heads = Mapping[str, TaskHead]
Labels = Mapping[str, tuple[str, ...]]


def write_tasks(folder: Path, heads: Heads, labels: Labels) -> None:
    """Write tasks into a model's folder, and describe them in its card."""
    (folder / "tasks").mkdir()
    for name, head in heads.items():
        weights = {key: tensor.detach().cpu().contiguous() for key, tensor in head.state_dict().items()}
        save_file(weights, folder / "tasks" / f"{name}.safetensors")
    tasks = [{"labels": labels[name], **_facts(head.setup)} for name, head in heads.items()]
    write_json(folder / TASKS, {"format": _FORMAT, "tasks": tasks}, indent=2)
    card = folder / "README.md"
    before, use, after = card.read_text(encoding="utf-8").partition("## Use\n")
    card.write_text(before + _card_section(heads, labels) + use + after, encoding="utf-8")


def _facts(setup: TaskSetup) -> dict[str, Any]:
    """Return the declaration, without the local folder of its file, and the objective."""
    task = setup.task.replaced(file=Path(setup.task.file).name)
    return {"task": task.model_dump(exclude_none=True), "objective": setup.objective.model_dump(exclude_none=True)}


def _card_section(heads: Heads, labels: Labels) -> str:
    rows = []
    for name, head in heads.items():
        task, (low, high) = head.setup.task, head.setup.scale
        predicts = ", ".join(labels[name]) or f"a number from {low:g} to {high:g}"
        rows.append(f"| {name} | {task.kind}: {cell(', '.join(task.text_columns))} | {cell(predicts)} |\n")
    return f"""## Tasks

| task | takes | predicts |
|---|---|---|
{"".join(rows)}
```bash
layerwise predict "path or name" INPUT.csv --task {next(iter(heads))} -o OUT.csv
```

"""


def read_tasks(folder: Path, width: int) -> tuple[dict[str, TaskHead], dict[str, tuple[str, ...]]]:
    """Load heads for embeddings of this width, and classes, by task; raise for a damaged folder."""
    path = folder / TASKS
    if not path.is_file():
        raise ModelError(f"{folder}: no {TASKS}, so it has no tasks to predict; train one with `layerwise multitask`")
    try:
        facts = read_json(path, remedy=_REMEDY)
        if facts["format"] != _FORMAT:
            raise InputError(f"its format is {facts['format']}, this version reads {_FORMAT}; update layerwise")
        tasks = [_read(folder, task, width) for task in facts["tasks"]]
        names = [head.setup.name for head, _ in tasks]
        if len(set(names)) < len(names):
            raise ValueError(f"two tasks have one name: {', '.join(names)}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, LayerwiseError):
            text = str(error)
            raise ModelError(text if text.startswith(str(folder)) else f"{path}: {text}") from error
        raise ModelError(f"{path}: is damaged: {error}; {_REMEDY}") from error
    return {head.setup.name: head for head, _ in tasks}, {head.setup.name: names for head, names in tasks}


def _read(folder: Path, task: Mapping[str, Any], width: int) -> tuple[TaskHead, tuple[str, ...]]:
    for key in ("task", "objective"):
        if not isinstance(task[key], dict):
            raise ValueError(f"{key} is {task[key]!r}; expected a table")
    setup = TaskSetup(Task(**task["task"]), TaskObjective(**task["objective"]))
    labels = _labels(task["labels"], setup)
    head = task_head(setup, width, setup.outputs_for(len(labels)), seed=0)
    path = folder / "tasks" / f"{setup.name}.safetensors"
    try:
        head.load_state_dict(load_file(path))
    except (OSError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path}: cannot be read: {reason}; the folder is incomplete, save it again") from error
    except RuntimeError as error:
        raise ModelError(f"{path}: its weights are not those of the head in {TASKS}; save the folder again") from error
    return head.eval(), labels


def _labels(labels: Any, setup: TaskSetup) -> tuple[str, ...]:
    """The classes, checked: a text each, none twice, as many as the task has."""
    if not isinstance(labels, list) or not all(isinstance(name, str) for name in labels):
        raise ValueError(f"labels {labels!r} of task {setup.name!r}: expected a list of texts")
    if len(set(labels)) < len(labels):
        raise ValueError(f"labels {labels!r} of task {setup.name!r}: a class comes twice")
    declared = setup.task.labels
    if declared and len(labels) != len(declared):
        raise ValueError(f"task {setup.name!r} has {len(labels)} labels, but declares {len(declared)}")
    if setup.task.has_classes:
        setup.check_classes(len(labels))
    elif labels:
        raise ValueError(f"labels {labels!r} of task {setup.name!r}, which predicts numbers")
    return tuple(labels)
