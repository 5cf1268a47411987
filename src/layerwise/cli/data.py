"""`layerwise data`: list the known tasks, fetch their rows, and check those that are here."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerwise.cli.group import Group
from layerwise.cli.options import AsJson, DataFolder
from layerwise.cli.screen import print_json, print_line, print_table, say_error

if TYPE_CHECKING:
    from layerwise.data import Task

app = typer.Typer(cls=Group, help="List, fetch and check the data of evaluation tasks.", no_args_is_help=True)

Names = Annotated[list[str] | None, typer.Argument(help="Tasks by name, or task files (TOML).")]
Suite = Annotated[list[str] | None, typer.Option("--suite", help="Every task of this suite, or all; may be repeated.")]


@app.command("list")
def list_tasks(names: Names = None, suite: Suite = None, data: DataFolder = None, as_json: AsJson = False) -> None:
    """Show the known tasks, and where their rows are."""
    facts = [_facts(task, data) for task in _tasks(names, suite)]
    if as_json:
        print_json(facts)
        return
    if names:  # everything about a few
        for fact in facts:
            print_table(("", fact["name"]), [(key, _shown(value)) for key, value in fact.items() if key != "name"])
        return
    columns = ("name", "suite", "metric", "rows", "where")
    short = [fact | {"rows": "/".join(f"{count:,}" for count in fact["rows"].values())} for fact in facts]
    print_table(columns, [[str(fact[column]) for column in columns] for fact in short])
    available = sum(fact["where"] != "not here" for fact in facts)
    print_line(f"{available} of {len(facts)} tasks are here; sources and licences: layerwise data list NAME, or --json")


@app.command("fetch")
def fetch_tasks(
    names: Names = None,
    suite: Suite = None,
    to: Annotated[
        str | None, typer.Option("--to", "--data", help="Into this folder (later --data); by default the user's cache.")
    ] = None,
) -> None:
    """Fetch tasks from where they are published; existing files are left as they are."""
    from layerwise.data import fetch_task, fetched_folder, find_file
    from layerwise.errors import InputError, LayerwiseError
    from layerwise.files import check_writable

    if not names and not suite:
        raise InputError("no task to fetch; name some, or a suite: layerwise data fetch --suite sts")
    folder = Path(to).expanduser() if to else fetched_folder()
    check_writable(folder / "task")
    failures = []
    for task in _tasks(names, suite):
        file = find_file(task) if to is None else folder / task.file
        if file and file.is_file():
            print_line(f"{task.name}: is here, {file}")
            continue
        print_line(f"{task.name}: from {task.source or 'nowhere'}")
        try:
            print_line(f"{task.name}: fetched, {fetch_task(task, folder)}")
        except LayerwiseError as error:
            failures.append(f"{task.name}: {error}")
    for failure in failures:
        say_error(failure)
    if failures:
        raise typer.Exit(2)


@app.command("check")
def check_tasks(names: Names = None, suite: Suite = None, data: DataFolder = None, as_json: AsJson = False) -> None:
    """Read every task that is here, and compare it with the rows that published figures were made on."""
    checks = [_check(task, data) for task in _tasks(names, suite)]
    if as_json:
        print_json(checks)
    else:
        rows = [(check["name"], _shown(check["rows"]), check["state"], check["why"]) for check in checks]
        print_table(("name", "rows", "state", ""), rows)
        print_line(_summary([check["state"] for check in checks]))
    if any(check["state"] in ("differs", "unreadable") for check in checks):
        raise typer.Exit(2)


def _tasks(names: list[str] | None, suites: list[str] | None) -> "list[Task]":
    from layerwise.data import find_tasks, known_tasks

    return find_tasks(names or (), suites or ()) if names or suites else list(known_tasks().values())


def _facts(task: "Task", data: str | None) -> dict[str, Any]:
    from layerwise.data import fetched_folder, find_file

    path = find_file(task, data)
    state = "not here" if path is None else "fetched" if path.is_relative_to(fetched_folder()) else "folder"
    facts = {name: getattr(task, name) for name in ("name", "suite", "kind", "metric", "rows", "licence", "note")}
    source = str(task.source) if task.source else None
    return facts | {"where": state, "path": str(path) if path else None, "source": source}


def _check(task: "Task", data: str | None) -> dict[str, Any]:
    """A task's rows against its declaration: ok, differs, missing, unreadable; undeclared if it states no digest."""
    from layerwise.data import NoSubsetError, differences, find_file, read_task
    from layerwise.errors import LayerwiseError

    check: dict[str, Any] = {"name": task.name, "state": "missing", "rows": {}, "digest": None, "path": None, "why": ""}
    path = find_file(task, data)
    if path is None:
        return check
    check["path"] = str(path)
    try:
        rows = read_task(task, path)
    except NoSubsetError as error:
        return check | {"why": str(error)}
    except LayerwiseError as error:
        return check | {"state": "unreadable", "why": str(error)}
    why = differences(rows)
    state = "differs" if why else "ok" if task.digest else "undeclared"
    return check | {"state": state, "rows": rows.counts, "digest": rows.digest, "why": "; ".join(why)}


def _summary(states: list[str]) -> str:
    available = [state for state in states if state != "missing"]
    if not available:
        return f"0 of {len(states)} tasks are here; name their folder by --data, or fetch them: layerwise data fetch"
    counts = ", ".join(f"{available.count(state)} {state}" for state in dict.fromkeys(available))
    return f"{len(available)} of {len(states)} tasks are here: {counts}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{count:,} {role}" if role != "all" else f"{count:,}" for role, count in value.items())
    return str(value or "")
