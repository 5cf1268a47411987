"""The tables of docs/kinds.md: which layers win per kind of task, and what choosing layers is worth."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

RESULTS = Path(__file__).parent / "results"


def _models() -> dict[str, Any]:
    return json.loads((RESULTS / "kinds.json").read_text(encoding="utf-8"))["models"]


def _points(value: float) -> str:
    return f"{100 * value:.1f}"


def _gain(gain: dict[str, float]) -> str:
    return f"{100 * gain['mean']:+.1f} [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]"


def _sign(gain: dict[str, float]) -> str:
    return "helps" if gain["low"] > 0 else "hurts" if gain["high"] < 0 else "no clear difference"


def _scaled(scale: float) -> str:
    return "" if scale == 1 else f", {scale:g} times as many rows"


def _where(model: dict[str, Any]) -> str:
    device = model.get("machine", {}).get("device")
    return f"an {device} beside other work" if device else "a shared machine of two cores"


def _set(layers: list[int]) -> str:
    return ",".join(map(str, layers))


def kinds_answer() -> str:
    """Three sentences for each model."""
    lines = []
    for name, model in _models().items():
        tasks = model["tasks"]
        others = {task: row for task, row in tasks.items() if row["suite"] not in ("sts", "relatedness")}
        last = len(tasks["stsb"]["layers"]) - 1
        best = {task: max(range(last + 1), key=row["layers"].__getitem__) for task, row in tasks.items()}
        at_last = [task for task, layer in best.items() if layer == last]
        by_sign = {
            sign: [t for t, row in others.items() if _sign(row["sts_gain"]) == sign] for sign in ("helps", "hurts")
        }
        reliable = [task for task, row in tasks.items() if row["reliable"]]
        helped, hurt = (f"{len(t)}{' (' + ', '.join(t) + ')' if t else ''}" for t in by_sign.values())
        mean_sts = mean(100 * row["sts_gain"]["mean"] for row in others.values())
        mean_own = mean(100 * row["own_gain"]["mean"] for row in others.values())
        lines += [
            f"**{name}** ({last} blocks, {len(tasks)} tasks{_scaled(model['scale'])}).",
            "",
            f"- *Which layer wins:* the last one on {len(at_last)} of {len(tasks)} tasks; elsewhere "
            + (", ".join(f"layer {layer} ({task})" for task, layer in best.items() if layer != last) or "none")
            + ".",
            f"- *The set chosen on STS-B* ({_set(model['sts_set'])}) reliably helps {helped} and reliably hurts {hurt} "
            f"of the {len(others)} tasks of other kinds; on average {mean_sts:+.1f} points against the last layer.",
            f"- *Choosing per task* gains {mean_own:+.1f} points on average there; reliably on {len(reliable)} of all "
            f"{len(tasks)} tasks{': ' + ', '.join(reliable) if reliable else ''}.",
            "",
        ]
    return "\n".join(lines)


def kinds_layers() -> str:
    """Every single layer on every task."""
    parts = []
    for name, model in _models().items():
        layers = len(next(iter(model["tasks"].values()))["layers"])
        lines = [f"| {name} | " + " | ".join(map(str, range(layers))) + " |", "|---" * (layers + 1) + "|"]
        for task, row in model["tasks"].items():
            top = max(row["layers"])
            cells = [f"**{_points(score)}**" if score == top else _points(score) for score in row["layers"]]
            lines.append(f"| {task} ({row['metric']}) | " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def kinds_gains() -> str:
    """The last layer, the set chosen on STS-B and the task's own on rows that did not choose."""
    parts = []
    for name, model in _models().items():
        lines = [
            f"| {name} | kind | choose, report | last layer | set of STS-B: gain | | own set | its gain | use it? |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for task, row in model["tasks"].items():
            sizes = f"{row['choose']}, {row['report']} {row['unit']}"
            use = "yes" if row["reliable"] else "keep the last"
            cells = (task, row["kind"], sizes, _points(row["last"]), _gain(row["sts_gain"]), _sign(row["sts_gain"]))
            lines.append(f"| {' | '.join((*cells, _set(row['own_set']), _gain(row['own_gain']), use))} |")
        rows = model["tasks"].values()
        seconds = sum(row["seconds"] for row in ([row for row in rows if "device" not in row] or rows))
        parts.append("\n".join(lines) + f"\n\nAll of it took {seconds / 60:.0f} minutes on {_where(model)}.")
    return "\n\n".join(parts) + "\n"
