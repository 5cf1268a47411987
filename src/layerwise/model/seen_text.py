"""What a model's parts were fitted on, beside the model: facts in layerwise.json, hashes in files of their own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from layerwise.encoder.folders import ModelFolder
from layerwise.errors import ModelError
from layerwise.postprocess.fitted_on import FittedOn

_FOLDER = "fitted_on"


def write_seen_text(folder: Path, records: Sequence[FittedOn]) -> list[dict[str, Any]]:
    """Write each record's hashes, and give the facts for layerwise.json, which name the files."""
    facts = []
    for number, record in enumerate(records):
        path = folder / _FOLDER / f"{number}.safetensors"
        path.parent.mkdir(exist_ok=True)
        save_file({"hashes": record.hashes}, path)
        facts.append(record.facts() | {"hashes": f"{_FOLDER}/{path.name}"})
    return facts


def read_seen_text(folder: ModelFolder) -> tuple[FittedOn, ...]:
    """The records of a folder, in their order; none where it has none."""
    return tuple(_read(folder, facts) for facts in folder.read_json("layerwise.json").get("fitted_on") or [])


def _read(folder: ModelFolder, facts: dict[str, Any]) -> FittedOn:
    path = folder.root / _FOLDER / Path(str(facts.get("hashes", ""))).name  # whatever it says, nothing outside
    try:
        hashes = load_file(path)["hashes"].astype(np.uint64)
        record = FittedOn(
            str(facts["source"]), int(facts["sentences"]), str(facts["digest"]), hashes, str(facts["what"])
        )
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise ModelError(
            f"{path}: what the model was fitted on can't be read ({error}); copy or download the folder again"
        ) from error
    if record.different != facts.get("different"):
        raise ModelError(f"{path}: {record.different} hashes, but layerwise.json says {facts.get('different')}")
    return record
