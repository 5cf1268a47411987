"""The table of docs/indexing.md: every kind of index against brute force."""

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def _flattered(pgvector: dict) -> str:
    """Where the effort of a search was chosen on rows of the table, as it once was."""
    if pgvector["recall_at_10"] >= 0.95 or pgvector["recall_at_load"] < 0.95:
        return ""
    return (
        " The effort of pgvector's search was set on rows of its own table, which are found more easily "
        f"({pgvector['recall_at_load']:.3f}) than other texts; it is now set on means of two rows, which was not "
        "measured again."
    )


def million_table() -> str:
    """The same of a million vectors."""
    return index_table("index-million")


def index_table(name: str = "index") -> str:
    """Time to build, recall, time of a query and memory, each beside that of brute force."""
    result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    indexes = result["indexes"]
    exact = indexes["brute force"]
    lines = ["| index | build time | recall@10 | time per query | relative to brute force | memory |"]
    lines.append("|---|---|---|---|---|---|")
    for name, facts in indexes.items():
        built = f"{facts['build_seconds']:.1f} s" if "build_seconds" in facts else ""
        time = facts["median_milliseconds"]
        lines.append(
            f"| {name} | {built} | {facts['recall_at_10']:.3f} | {time:.2f} ms | "
            f"{time / exact['median_milliseconds']:.2f}× | {facts['memory_bytes'] / 1e6:.0f} MB |"
        )
    machine, load = result["machine"], max(result["other_work"].values())
    busy = (
        f" Other jobs ran at the same time (load average up to {load:.0f}): times are too long and only "
        f"comparable with each other."
        if load > machine["cores"] / 2
        else ""
    )
    pgvector = indexes.get("pgvector")
    of_table = (
        f"; for pgvector, the size of table and index. The build time includes measuring the recall, and for pgvector "
        f"loading and indexing.{_flattered(pgvector)}"
        if pgvector
        else ". The build time includes measuring the recall."
    )
    note = (
        f"{result['rows']:,} {result['what']}; {result['queries']} other sentences as queries, one at a time, "
        f"median of three rounds; {machine['cores']} cores ({machine['processor']}).{busy} Brute force is NumPy over "
        f"all vectors. Memory is what opening and searching an index adds to a process (brute force: including kept "
        f"columns and the libraries that read them){of_table}"
    )
    return "\n".join(lines) + f"\n\n{note}\n"
