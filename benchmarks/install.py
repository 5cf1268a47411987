"""What a plain `pip install layerwise` brings: packages and megabytes, against sentence-transformers alone.

The package is installed into an environment of its own, with torch as constraints.txt pins it (or `--python` names the
Python of one, such as that of `make dist`). Counted are the packages that are needed, by their metadata, and the bytes
of their files without compiled bytecode: all of layerwise's core, and those that sentence-transformers needs among
them. Raw result: benchmarks/results/install.json.

    python benchmarks/install.py
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "install.json"
_COUNT = """
import json, sys
from importlib import metadata
from pathlib import Path
from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

def needed(name):
    found, waiting = {}, [Requirement(name)]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        extras = requirement.extras or {""}
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        each = metadata.distribution(name)
        files = {Path(each.locate_file(file)) for file in each.files or () if not str(file).endswith(".pyc")}
        size = sum(path.stat().st_size for path in files if path.is_file())
        found[name] = {"version": each.version, "bytes": size}
        inner = [Requirement(text) for text in each.requires or ()]
        for wanted in extras - {""}:
            waiting += [one for one in inner if one.marker and one.marker.evaluate({"extra": wanted})]
        waiting += [one for one in inner if one.marker is None or one.marker.evaluate({"extra": ""})]
    return dict(sorted(found.items()))

print(json.dumps({name: needed(name) for name in ("sentence-transformers", "layerwise")}))
"""


def installed(folder: str) -> Path:
    """The Python of a new environment that has the package."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = Path(folder) / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-compile", "--constraint", "constraints.txt"]
    subprocess.run([*pip, "torch"], cwd=ROOT, check=True)
    subprocess.run([*pip, "."], cwd=ROOT, check=True)
    return python


def totals(packages: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """How many, and how large, with and without torch."""
    sizes = {name: package["bytes"] for name, package in packages.items()}
    return {
        "packages": len(sizes),
        "megabytes": round(sum(sizes.values()) / 1e6, 1),
        "megabytes_without_torch": round((sum(sizes.values()) - sizes["torch"]) / 1e6, 1),
    }


def install_table() -> str:
    """A plain install beside sentence-transformers alone, in a sentence."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    ours, theirs = (result["totals"][name] for name in ("layerwise", "sentence-transformers"))
    largest = max(result["core_adds"].items(), key=lambda added: added[1]["bytes"])
    return (
        f"`pip install .` installs {ours['packages']} packages, {ours['megabytes_without_torch']:.0f} MB besides "
        f"torch; sentence-transformers alone {theirs['packages']}, {theirs['megabytes_without_torch']:.0f} MB. Most of "
        f"the difference is {largest[0]} ({largest[1]['bytes'] / 1e6:.0f} MB). (`benchmarks/install.py`)\n"
    )


def main() -> None:
    """Count, and say what core adds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, help="The Python of an environment that has the package.")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        python = options.python or installed(folder)
        done = subprocess.run([str(python), "-I", "-c", _COUNT], check=True, capture_output=True)
    needed = json.loads(done.stdout)
    core, reference = needed["layerwise"], needed["sentence-transformers"]
    result = {
        "machine": {"python": platform.python_version(), "platform": platform.platform()},
        "totals": {name: totals(packages) for name, packages in needed.items()},
        "core_adds": {name: core[name] for name in core if name not in reference},
        "core": core,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result["totals"], indent=1))
    print(f"core adds {', '.join(result['core_adds'])}")


if __name__ == "__main__":
    main()
