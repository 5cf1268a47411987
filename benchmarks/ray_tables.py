"""The tables of docs/cluster.md: kills and times as measured, and a plan for a billion texts computed from them."""

import json
from math import ceil
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).parent / "results"
TEXTS, WIDTH, SHARD_ROWS, PRICE = 1_000_000_000, 768, 65_536, 3.0
EMBED = "layerwise embed, file to Parquet shards"


def read(name: str) -> dict:
    """A raw result."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def ray_table() -> str:
    """What was killed and what became of the rows, and the time of Ray to that of other engines."""
    result = read("embed_ray")
    lines = ["| killed with SIGKILL | times | rows lost | rows duplicated | largest difference from the local engine |"]
    lines += ["|---" * 5 + "|"]
    names = {"workers": "a worker", "drivers": "the command, with its cluster", "nodes": "a node with its worker"}
    parts = [part for part in names if part in result]
    for part in parts:
        facts, name = result[part], names[part]
        assert facts["returncode"] == 0
        assert facts["faults"] == []
        assert facts["compared"]["rows"] == facts["rows_in_manifest"]  # `compare` has checked the number of every row
        written = [kill.get("shards_at_kill", kill.get("shards_after_kill")) for kill in facts["kills"]]
        during = sum(shards < facts["compared"]["shards"] for shards in written)  # others came when all was written
        lines.append(f"| {name} | {during} | 0 | 0 | {facts['compared']['largest_difference']:.1g} |")
    ended = max(kill["seconds_until_workers_ended"] for kill in result["drivers"]["kills"])
    rows = [result[part]["compared"]["rows"] for part in parts]
    note = (
        f"{min(rows):,} to {max(rows):,} wiki1m sentences in shards of 50 rows, two workers. Kills came at random "
        "times; each output was compared row by row and checked with `--verify`. Workers of a killed command ended "
        f"within {ended:.0f} s."
    )
    return "\n".join(lines) + f"\n\n{note}{_speed(result['speed'])}\n"


def _speed(result: dict) -> str:
    """The time of Ray to that of other engines; start and rate apart where they were measured apart."""
    runs, count = result["runs"], len(result["runs"]["local"])

    def ratio(what: str, other: str) -> float:
        pairs = zip(runs["two Ray workers"], runs[other], strict=True)
        return median(one[what] / two[what] for one, two in pairs)

    load, what = result["load_average_at_its_end"], result["what"]
    busy = (
        f" Other jobs ran on the two cores at the same time (load average {load:.0f}), so times are only "
        "comparable with each other."
        if load > 3
        else ""
    )
    source = f"{busy} (`benchmarks/embed_ray.py`, raw results: `embed_ray.json`.)"
    times = f"{ratio('seconds', 'two processes'):.2f}× the time of `--processes 2` and {ratio('seconds', 'local'):.2f}×"
    repeats = "one run of each" if count == 1 else f"medians of {count} runs of each, in turn"
    if "rows_per_second" not in runs["local"][0]:
        return (
            f" Total time ({what}): two Ray workers took {times} that of one process, including start and stop of the "
            f"cluster ({repeats}, which only gives a rough idea of the cost of Ray).{source}"
        )
    columns = ["seconds_until_first_shard", "rows_per_second", "seconds_after_last_shard", "seconds"]
    labels = {"local": "one process", "two processes": "`--processes 2`", "two Ray workers": "two Ray workers"}
    lines = [
        "",
        "",
        "| engine | until the first shard | rows per second | after the last shard | total |",
        "|---" * 5 + "|",
    ]
    for name, label in labels.items():
        first, rate, last, total = (median(run[column] for run in runs[name]) for column in columns)
        lines.append(f"| {label} | {first:.1f} s | {rate:.0f} | {last:.1f} s | {total:.1f} s |")
    more = median(
        one["seconds_until_first_shard"] - two["seconds_until_first_shard"]
        for one, two in zip(runs["two Ray workers"], runs["two processes"], strict=True)
    )
    rates = f"{ratio('rows_per_second', 'two processes'):.2f}× the rows per second of `--processes 2`"
    lines += [
        "",
        f"{what}; {repeats}. Ray needs {more:.1f} s more than `--processes 2` until the first shard; after that, two "
        f"Ray workers embed {rates} and {ratio('rows_per_second', 'local'):.2f}× those of one process. In all, they "
        f"took {times} that of one process. Rates are of the middle four fifths of the shards.{source}",
    ]
    return "\n".join(lines)


def plan_table() -> str:
    """Shards, time and cost of a billion texts on 8 and 64 GPUs. Computed, not run."""
    gpu, driver = read("embed_gpu"), read("embed_ray")["reading"]
    rate = gpu["sentences_per_second"][EMBED]
    row_bytes = driver["bytes_per_row_of_shards"]
    read_rate = driver["rows_per_cpu_second_read_and_pickled"]
    hashed, checked = (driver[f"bytes_per_cpu_second_{what}"] for what in ("hashed_at_the_end", "checked_on_resuming"))
    head = ["", "8 GPUs, one command", "64 GPUs, one command", f"64 GPUs, {64 // 8} commands"]
    cases = [(8, 1), (64, 1), (64, 64 // 8)]

    def row(name: str, cell) -> str:
        return f"| {name} | " + " | ".join(cell(gpus, commands) for gpus, commands in cases) + " |"

    def embedding(gpus: int, commands: int) -> float:
        return max(TEXTS / (gpus * rate), TEXTS / commands / read_rate)

    def total(gpus: int, commands: int) -> float:
        return embedding(gpus, commands) + TEXTS * row_bytes / commands / hashed

    def cost(gpus: int, commands: int) -> str:
        return f"{gpus * total(gpus, commands) / 3600 * PRICE:,.0f}"

    lines = ["| " + " | ".join(head) + " |", "|---" * 4 + "|"]
    lines += [
        row("texts per second that the GPUs can embed", lambda g, _: f"{g * rate:,.0f}"),
        row("texts per second that can be read for them", lambda _, c: f"{c * read_rate:,.0f}"),
        row("embedding", lambda g, c: hours(embedding(g, c))),
        row("checksums at the end", lambda _, c: hours(TEXTS * row_bytes / c / hashed)),
        row("total time", lambda g, c: hours(total(g, c))),
        row(f"cost at {PRICE:g} per GPU hour", cost),
        row("written to the store", lambda g, c: f"{TEXTS / embedding(g, c) * row_bytes / 1e9:.1f} GB/s"),
        row("shards per command", lambda _, c: f"{ceil(TEXTS / c / SHARD_ROWS):,}"),
        row("checking all shards to resume a command", lambda _, c: hours(TEXTS * row_bytes / c / checked)),
    ]
    note = (
        f"**Computed, not measured**: {TEXTS:,} texts of {gpu['mean_tokens']:.0f} tokens, {WIDTH} dimensions in "
        f"float16, `--shard-rows {SHARD_ROWS}`: {TEXTS * row_bytes / 1e12:.2f} TB in shards of "
        f"{SHARD_ROWS * row_bytes / 1e6:.0f} MB. Measured: {rate:,.0f} texts per second from file to shards on one "
        f"{gpu['device']}, {gpu['what'].split(', ', 2)[2]} (`embed_gpu.json`; "
        f"{gpu['sentences_per_second']['layerwise, 65536 tokens']:,.0f} without reading and writing); on a CPU of this "
        f"machine, one process reads and distributes {read_rate:,.0f} rows per second, hashes {hashed / 1e9:.2f} GB/s "
        f"and checks {checked / 1e9:.2f} GB/s (`embed_ray.json`). Assumed: no loss by the network, a store that "
        "accepts the full output rate, GPUs that are paid for until the end, and their price, in any currency."
    )
    return "\n".join(lines) + f"\n\n{note}\n"


def hours(seconds: float) -> str:
    """Such as "1.7 h", or minutes where there are few."""
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.0f} min"
