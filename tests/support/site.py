"""A Python that finds some of the installed packages only: a folder of links to them, instead of site-packages."""

import os
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SOURCE = Path(__file__).parents[2] / "src"


def core_packages(requirements: Iterable[str]) -> set[str]:
    """Packages that a plain `pip install` of these requirements brings, by the metadata of what is installed."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (requirement.marker and not requirement.marker.evaluate({"extra": ""})) or name in found:
            continue
        try:
            waiting += map(Requirement, metadata.requires(name) or ())
        except metadata.PackageNotFoundError:  # of a torch for GPUs, on a machine without
            continue
        found.add(name)
    return found


def link_packages(names: Iterable[str], folder: Path) -> Path:
    """A folder in which these packages and no others are installed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        files = metadata.files(name) or ()
        for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
            place = Path(str(metadata.distribution(name).locate_file(top)))
            if place.exists() and not (folder / top).exists():
                (folder / top).symlink_to(place)
    return folder


def run_in(site: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run Python with the packages of a folder, and this one, alone (-S: without site-packages)."""
    env = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{site}", "COLUMNS": "200", **environment}
    return subprocess.run(
        [sys.executable, "-S", *arguments], env=env, capture_output=True, text=True, check=False, timeout=120
    )
