"""The tables of docs/indexing.md: every kind of index against brute force, by vectors and by text."""

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


def text_table() -> str:
    """Queries by text, end to end; empty until they are measured (`--name index-text`)."""
    path = RESULTS / "index-text.json"
    if not path.is_file():
        return ""
    result = json.loads(path.read_text(encoding="utf-8"))
    exact = result["indexes"]["brute force"]["median_text_milliseconds"]
    lines = ["| index | embedding | text to rows, median | slowest 1 % | relative to brute force | recall@10 |"]
    lines.append("|---" * 6 + "|")
    for name, facts in result["indexes"].items():
        median, slowest = facts["median_text_milliseconds"], facts["slowest_percent_text_milliseconds"]
        lines.append(
            f"| {name} | {facts['median_embedding_milliseconds']:.2f} ms | {median:.2f} ms | {slowest:.2f} ms | "
            f"{median / exact:.2f}× | {facts['recall_at_10']:.3f} |"
        )
    head = (
        f"Queries by text: the model embeds one text at a time, and the index of {result['rows']:,} vectors returns "
        "the ten nearest rows:"
    )
    note = (
        f"{result['what']}; {result['queries']} other sentences as queries, three rounds; "
        f"{result['machine']['cores']} cores ({result['machine']['processor']}).{_busy(result)} The median "
        "includes embedding the text. (`benchmarks/index.py --name index-text`.)"
    )
    return f"{head}\n\n" + "\n".join(lines) + f"\n\n{note}\n"


def _busy(result: dict) -> str:
    """A warning where other jobs took the cores."""
    load = max(result["other_work"].values())
    if load <= result["machine"]["cores"] / 2:
        return ""
    return (
        f" Other jobs ran at the same time (load average up to {load:.0f}): times are too long and only "
        "comparable with each other."
    )


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
    machine = result["machine"]
    pgvector = indexes.get("pgvector")
    of_table = (
        f"; for pgvector, the size of table and index. The build time includes measuring the recall, and for pgvector "
        f"loading and indexing.{_flattered(pgvector)}"
        if pgvector
        else ". The build time includes measuring the recall."
    )
    note = (
        f"{result['rows']:,} {result['what']}; {result['queries']} other sentences as queries, one at a time, "
        f"median of three rounds; {machine['cores']} cores ({machine['processor']}).{_busy(result)} Brute force is "
        "NumPy over all vectors. Memory is what opening and searching an index adds to a process (brute force: "
        "including kept "
        f"columns and the libraries that read them){of_table}"
    )
    return "\n".join(lines) + f"\n\n{note}\n"
