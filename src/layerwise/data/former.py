"""Task files of the former format of multitask training: errors that show the lines to write instead."""

import json
from collections.abc import Mapping
from typing import Any

from layerwise.errors import InputError

OBJECTIVE_KEYS = (
    "head",
    "features",
    "loss",
    "dropout",
    "weight",
    "supervised",
    "contrast",
    "contrast_temperature",
    "contrast_dropout",
    "max_length",
    "limit",
)
_KINDS = {
    "pairs": 'kind = "classification", with columns = { left = ..., right = ... }',
    "similarity": 'kind = "sts", whose metric is "spearman" unless metric = "pearson" is given',
}


def check_current(table: Mapping[str, Any]) -> None:
    """Raise for a [[task]] table of multitask training's former format, with the lines to write instead."""
    lines = [*_columns(table)]
    if table.get("kind") in _KINDS:
        lines.append(f"kind = {_value(table['kind'])} is now written {_KINDS[table['kind']]}")
    moved = [f"{key} = {_value(table[key])}" for key in OBJECTIVE_KEYS if key in table]
    if moved:
        task = f"task = {_value(table.get('name', '...'))}"
        verb = "is" if len(moved) == 1 else "are"
        lines.append(f"{', '.join(moved)} {verb} now written in an [[objective]] table of the recipe, with {task}")
    if lines:
        raise InputError("; ".join(lines))


def _columns(table: Mapping[str, Any]) -> list[str]:
    """The table of columns that replaces a list of them, `label` and `split_column`."""
    columns, keys = table.get("columns"), [key for key in ("label", "split_column") if key in table]
    if not isinstance(columns, list | tuple) and not keys:
        return []
    names = columns or {}
    if isinstance(columns, list | tuple):
        names = dict(zip(("left", "right"), columns, strict=False))
    label = table.get("label", "label" if table.get("kind") == "similarity" else None)
    places = {**names, "label": label, "split": table.get("split_column")}
    former = [f"{key} = {_value(table[key])}" for key in ("columns", *keys) if key in table]
    current = ", ".join(f"{place} = {_value(name)}" for place, name in places.items() if name is not None)
    return [f"{' with '.join(former)} is now written columns = {{ {current} }}"]


def _value(value: Any) -> str:
    """Format a TOML value in one line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False, default=str)
