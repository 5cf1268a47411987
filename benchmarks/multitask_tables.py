"""The tables about multitask training, from raw results; `tables.py` writes them."""

from statistics import mean, stdev
from typing import Any

from evaluation_tables import RESULTS, read, table
from multitask_rows import ALSO, DEFAULT, ENCODERS, FINAL_RATES, GROUPS, ROWS, SEEDS, VIEWS, Row, encoders_of

Run = dict[str, Any]
NAMES = {"sst": "SST-5", "quora": "Quora", "sts": "STS", "cfimdb": "CFIMDB"}
METRICS = {"sst": "sst/accuracy", "quora": "quora/accuracy", "sts": "sts/pearson", "cfimdb": "cfimdb/accuracy"}
GOALS = {"sst": 0.50, "quora": 0.80, "sts": 0.85, "overall": 0.74, "cfimdb": 0.93}
TRIALS = "multitask_trials"
NOT_YET = "Not measured yet: `make bench-multitask`.\n"
OWN = "all-MiniLM-L6-v2"  # the shipped recipe's encoder


def multitask_table() -> str:
    """Every comparison for each encoder, joint against single training, and the shipped recipe."""
    runs = _runs()
    if not runs:
        return NOT_YET
    known = [name for name in dict.fromkeys([*ENCODERS, *(run["encoder"] for run in runs)]) if _of(runs, name)]
    parts = [_comparison(encoder, _of(runs, encoder)) for encoder in known if _of(runs, encoder, DEFAULT)]
    return "\n".join([_final(runs, known), *parts, _joint(runs, known), _missing(runs), _note(runs)])


def multitask_reached() -> dict[str, str]:
    """Recipe -> what it reached by its own encoder, and by the one that reached most: the `reached` of its file."""
    finals = [run for run in _runs() if run["row"] == "final"]
    if not finals:
        return {}
    encoders = dict.fromkeys([*([OWN] if _of(finals, OWN) else []), max(finals, key=_overall)["encoder"]])
    return {"cs224n": f"dev: {'; '.join(_reached_by(encoder, _of(finals, encoder)) for encoder in encoders)}"}


def _reached_by(encoder: str, own: list[Run]) -> str:
    scores = [f"{NAMES[task]} {_spread([_score(run, task) for run in own])}" for task in METRICS]
    overall, steps = _spread([_overall(run) for run in own]), round(mean(run["steps"] for run in own))
    return (
        f"{encoder}, rate {FINAL_RATES[encoder]}, {len(own)} seed(s): {', '.join(scores)}, "
        f"overall of the paper's three {overall} after {steps:,} steps"
    )


def _runs(name: str = "multitask") -> list[Run]:
    found: list[Run] = read(name)["runs"] if (RESULTS / f"{name}.json").is_file() else []
    return found


def _of(runs: list[Run], encoder: str, row: str | None = None) -> list[Run]:
    return [run for run in runs if run["encoder"] == encoder and row in (None, run["row"])]


def _comparison(encoder: str, runs: list[Run]) -> str:
    """One factor at a time from the default row."""
    lines = []
    for group in GROUPS:
        own = {name: row for name, row in ROWS.items() if row.group == group}
        if not any(run["row"] in own for run in runs):
            continue
        first = {DEFAULT: Row(*_as_default(group))} if group in ALSO else {}
        first |= {"contrast": Row("0.1, the encoder's", VIEWS)} if group == VIEWS else {}
        found = {name: _of(runs, encoder, name) for name in (first | own)}
        lines += [_line(group, row, found[name]) for name, row in (first | own).items() if found[name]]
    return table([f"dev, {encoder}", "", "SST-5", "Quora", "STS r", "overall", "the paper's", "seeds"], lines)


def _as_default(group: str) -> tuple[str, str, tuple[str, ...], tuple[str, ...], bool, str]:
    label, paper = ALSO[group]
    return label, group, (), ROWS[DEFAULT].tasks, True, paper


def _line(group: str, row: Row, own: list[Run]) -> list[str]:
    scores = [_spread([_score(run, task) for run in own]) for task in row.tasks]
    return [group, row.label, *scores, _spread([_overall(run) for run in own]), row.paper, str(len(own))]


def _joint(runs: list[Run], encoders: list[str]) -> str:
    """Each task alone at its best rate, all three, all four; and what the three are above one, seed by seed."""
    lines, worse = [], []
    for encoder in encoders:
        for task, name in NAMES.items():
            rate, alone = _best_alone(runs, encoder, task)
            joint = _seeds(_of(runs, encoder, "four" if task == "cfimdb" else DEFAULT), task)
            both = sorted(alone.keys() & joint.keys())
            if both:  # else there is nothing to compare yet
                gains = [joint[seed] - alone[seed] for seed in both]
                three = "" if task == "cfimdb" else _spread(list(joint.values()))
                four = _spread(list(_seeds(_of(runs, encoder, "four"), task).values()))
                lines.append([encoder, name, rate, _spread(list(alone.values())), three, four, _spread(gains, "+")])
                worse += [f"{name} ({encoder}: {_spread(gains, '+')})"] if _is_cost(gains) else []
    head = ["dev", "task", "rate, alone", "alone", "three tasks", "four tasks", "joint − alone, by seed"]
    if not lines:
        return ""
    costs = f"loses on {', '.join(worse)}" if worse else "loses on no task beyond the spread of the seeds"
    return table(head, lines) + f"\nJoint training {costs}.\n"


def _best_alone(runs: list[Run], encoder: str, task: str) -> tuple[str, dict[int, float]]:
    """The rate that is best for a task alone, of those with the most seeds, and its scores by seed.

    Of two runs of a seed the later one counts.
    """
    by_rate: dict[str, dict[int, float]] = {}
    for run in _of(_runs(TRIALS) + runs, encoder, f"single-{task}"):
        by_rate.setdefault(_rate(run), {})[run["seed"]] = _score(run, task)
    return max(by_rate.items(), key=lambda one: (len(one[1]), mean(one[1].values())), default=("", {}))


def _rate(run: Run) -> str:
    return str([text for text in run["sets"] if text.startswith("train.learning_rate=")][-1].partition("=")[2])


def _is_cost(gains: list[float]) -> bool:
    """Below 0 by more than the seeds' spread."""
    return mean(gains) < -(stdev(gains) if len(gains) > 1 else 0)


def _final(runs: list[Run], encoders: list[str]) -> str:
    lines = [["goal", "", *(f"≥ {GOALS[key]:.2f}" for key in ("sst", "quora", "sts", "overall", "cfimdb")), ""]]
    lines += [["the paper's final model (its test)", "", ".441", ".675", ".269", ".583", "", "1"]]
    for encoder in encoders:
        own = _of(runs, encoder, "final")
        if own:
            cells = {task: _spread([_score(run, task) for run in own]) for task in METRICS}
            whole = _spread([_overall(run) for run in own])
            scores = [cells["sst"], cells["quora"], cells["sts"], whole, cells["cfimdb"]]
            lines.append([encoder, FINAL_RATES[encoder], *scores, str(len(own))])
    return table(["`cs224n`, dev", "rate", "SST-5", "Quora", "STS r", "overall", "CFIMDB", "seeds"], lines)


def _missing(runs: list[Run]) -> str:
    """What of the comparison is still to be run."""
    done = {(run["row"], run["encoder"], run["seed"]) for run in runs}
    wanted = [(row, encoder, seed) for row in ROWS for encoder in encoders_of(row) for seed in SEEDS]
    left = [run for run in wanted if run not in done]
    if not left:
        return ""
    return (
        f"**{len(left)} of {len(wanted)} runs of the comparison are still to be made**, of the rows "
        f"{', '.join(dict.fromkeys(row for row, _, _ in left))}: they are not in the tables, or with fewer seeds.\n"
    )


def _note(runs: list[Run]) -> str:
    based = next((run for run in runs if run["row"] == DEFAULT), runs[0])
    return (
        "Accuracy, and Pearson's r for STS; overall is the paper's, over three tasks, with (r + 1) / 2 for STS; mean "
        "± standard deviation over the seeds (`benchmarks/multitask.py`). One factor at a time is changed from a "
        "default row (linear heads, cosine for STS, [\\|u−v\\|; \\|u+v\\|], cycling, equal weights, mean of the last "
        "layer), which is part of every comparison. Exceptions: heads alone have another rate (1e-3), three layers "
        "with inverse size change two factors, and the steps of table 8 are cumulative. All runs have "
        f"{based['steps']} steps; a step has 32 rows of each task, or 96 rows of the one task drawn for it. Rates were "
        "selected for the default row or the built-in recipe and are used for all rows, except single tasks, which "
        "have the best of the same three (1e-4, 2e-4, 4e-4): rows that differ a lot, such as one with an untrained "
        "pooler, may have a better rate. With a fixed number of steps, truncating differs from cycling only in that "
        "all tasks start a pass together. A single task sees as many of its rows as in joint training; its own score "
        "selects the step, in joint training the overall score does. Because the labels of the test splits are "
        "hidden, the same dev rows select the step and give the scores, which are therefore slightly optimistic. In "
        "the course's files 13 of the 863 STS pairs (16 in either order) and 2 of the 1,101 SST-5 texts of dev are "
        "also in train. Quora duplicates, perhaps including those of dev, were among the training pairs of "
        "all-MiniLM-L6-v2 and all-mpnet-base-v2. The paper's scores are for BERT-base with other batches and steps: "
        "compare their order, not their size.\n"
    )


def _score(run: Run, task: str) -> float:
    return float(run["dev"][METRICS[task]])


def _overall(run: Run) -> float:
    return mean([_score(run, "sst"), _score(run, "quora"), (_score(run, "sts") + 1) / 2])


def _seeds(runs: list[Run], task: str) -> dict[int, float]:
    return {run["seed"]: _score(run, task) for run in runs}


def _spread(values: list[float], sign: str = "") -> str:
    if not values:
        return ""
    around = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
    return f"{mean(values):{sign}.3f}{around}"
