"""`layerwise doctor`: versions, devices, caches and extras, what is wrong, and the remedy."""

from itertools import groupby
from typing import TYPE_CHECKING

import typer

from layerwise.cli.options import AsJson
from layerwise.cli.screen import counting, human_bytes, print_json, print_line, print_table

if TYPE_CHECKING:
    from layerwise.doctor import Check

_SIGNS = {"ok": "ok", "absent": "–", "warning": "warning", "broken": "BROKEN"}


def doctor(as_json: AsJson = False) -> None:
    """Check this installation: versions, devices, caches, extras, the embedded model.

    Exits with 1 if it is broken. An extra that does not work is a warning: the rest works without it.
    """
    from layerwise.doctor import diagnose

    with counting("Checking", unit="checks") as progress:
        diagnosis = diagnose(progress)
    if as_json:
        print_json(diagnosis.facts())
    else:
        for group, checks in groupby(diagnosis.checks, key=lambda check: check.group):
            print_table((group, "", "", ""), [_row(check) for check in checks], left=(2,))
        for check in diagnosis.checks:
            if check.state in ("warning", "broken"):
                print_line(f"{check.name}: {check.value}\n  remedy: {check.remedy}")
        print_line(_verdict(len(diagnosis.broken), len(diagnosis.warnings)))
    if diagnosis.broken:
        raise typer.Exit(1)


def _row(check: "Check") -> tuple[str, str, str, str]:
    value = f"{check.value}\n{check.remedy}" if check.state == "absent" else check.value
    return check.name, _SIGNS[check.state], value, "" if check.bytes is None else human_bytes(check.bytes)


def _verdict(broken: int, warnings: int) -> str:
    if broken:
        return f"{broken} {'check is' if broken == 1 else 'checks are'} BROKEN."
    if warnings:
        return f"All that is needed works; {warnings} {'warning' if warnings == 1 else 'warnings'}, see above."
    return "Everything works. What is marked – is optional."
