"""What is installed: packages and megabytes of layerwise, alone and with extras, and of sentence-transformers.

Each is installed into an environment of its own, with torch as constraints.txt pins it. Counted are the packages there
and the bytes of their files, without pip and without compiled bytecode. Raw result: benchmarks/results/install.json.

    python benchmarks/install.py
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
_TOOLS = ("pip", "setuptools", "wheel")  # of the environment itself
_COUNT = """
import json, sys
from importlib import metadata
from pathlib import Path
found = {}
for each in metadata.distributions():
    paths = {Path(each.locate_file(file)) for file in each.files or () if not str(file).endswith(".pyc")}
    found[each.metadata["Name"].lower()] = sum(path.stat().st_size for path in paths if path.is_file())
print(json.dumps(found))
"""


def measure(what: str, *requirements: str) -> dict[str, object]:
    """Install requirements into an empty environment, and count."""
    with tempfile.TemporaryDirectory() as name:
        subprocess.run([sys.executable, "-m", "venv", name], check=True)
        python = Path(name) / "bin" / "python"
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-compile", "--constraint", "constraints.txt"]
        start = time.perf_counter()
        subprocess.run([*pip, "torch"], cwd=ROOT, check=True)
        subprocess.run([*pip, *requirements], cwd=ROOT, check=True)
        seconds = time.perf_counter() - start
        sizes = json.loads(subprocess.run([str(python), "-c", _COUNT], check=True, capture_output=True).stdout)
    sizes = {name: size for name, size in sorted(sizes.items()) if name not in _TOOLS}
    result = {
        "what": what,
        "packages": len(sizes),
        "megabytes": round(sum(sizes.values()) / 1e6, 1),
        "megabytes_without_torch": round((sum(sizes.values()) - sizes["torch"]) / 1e6, 1),
        "seconds": round(seconds, 1),
        "bytes_by_package": sizes,
    }
    shown = {name: value for name, value in result.items() if name != "bytes_by_package"}
    print(json.dumps(shown), flush=True)
    return result


def main() -> None:
    """Measure the three, and say what core adds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "install.json")
    out = parser.parse_args().out
    installs = [
        measure("sentence-transformers", "sentence-transformers"),
        measure("layerwise", "."),
        measure("layerwise[all]", ".[all]"),
    ]
    reference, core = (set(install["bytes_by_package"]) for install in installs[:2])
    result = {
        "machine": {"python": platform.python_version(), "platform": platform.platform()},
        "installs": installs,
        "core_adds": sorted(core - reference),
        "core_lacks": sorted(reference - core),
    }
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"{out}: core adds {', '.join(result['core_adds'])}")


if __name__ == "__main__":
    main()
