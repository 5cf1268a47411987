"""Writes a model: a sentence-transformers folder with its card, the record of its text, and our loader's data."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from layerwise.checksums import write_checksums
from layerwise.encoder import LayerEncoder
from layerwise.errors import ModelError
from layerwise.files import atomic_folder
from layerwise.model.card import CardFacts, model_card
from layerwise.model.parts import ModelParts
from layerwise.model.sentence_transformer import to_sentence_transformer
from layerwise.muted import quiet
from layerwise.postprocess import write_records
from layerwise.version import __version__

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Extra = Callable[[Path], object]
_REMEDY = "nothing was changed there; free some space or give another path"


def save_model(
    encoder: LayerEncoder,
    parts: ModelParts,
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    extra: Extra | None = None,
) -> None:
    """Write the folder, whole or not at all. `extra` writes more files into it before it gets its name."""
    target = Path(folder).expanduser()
    check_target(target, overwrite=overwrite)
    with atomic_folder(target, remedy=_REMEDY, error=ModelError) as new:
        try:
            _write(encoder, parts, new)
            if extra is not None:
                extra(new)
            write_checksums(new, without=["README.md"])
        except SafetensorError as error:  # which hides that the disk is full
            raise OSError(str(error)) from error


def check_target(target: Path, *, overwrite: bool) -> None:
    """Raise for a path that cannot hold the model: a file, a folder of other files, or a model without `overwrite`."""
    target = target.expanduser()
    if target.exists() and not target.is_dir():
        raise ModelError(f"{target}: is a file; give a folder")
    if target.is_dir() and any(target.iterdir()):
        if not overwrite:
            raise ModelError(f"{target}: the folder is not empty; give another one, or overwrite it")
        if not (target / "config.json").is_file():
            raise ModelError(f"{target}: holds no model, so it is not overwritten; give another folder")


def push_to_hub(encoder: LayerEncoder, parts: ModelParts, repo_id: str, **options: Any) -> str:
    """Upload what `save_model` writes."""
    with tempfile.TemporaryDirectory(prefix="layerwise-") as folder:
        model = _write(encoder, parts, Path(folder))
        address: str = model.push_to_hub(repo_id, local_model_path=folder, **options)
    return address


def _write(encoder: LayerEncoder, parts: ModelParts, folder: Path) -> "SentenceTransformer":
    model, blocks = to_sentence_transformer(encoder, parts)
    with quiet():
        model.save_pretrained(str(folder), create_model_card=False)
    name, depth = _public_name(encoder), _original_depth(encoder)
    facts: dict[str, Any] = {
        "layerwise": __version__,
        "encoder": name,
        "mix": str(parts.mix),
        "chosen": parts.chosen,
        "blocks": {"kept": blocks, "of": depth},
        "fitted_on": write_records(folder, parts.fitted_on),
    }
    facts |= {"training": parts.training} if parts.training else {}
    (folder / "layerwise.json").write_text(json.dumps(facts, indent=2), encoding="utf-8")
    card = CardFacts(name, depth, blocks, parts.width(encoder.width), encoder.max_length)
    (folder / "README.md").write_text(model_card(card, parts), encoding="utf-8")
    return model


def _public_name(encoder: LayerEncoder) -> str:
    """The encoder's name without this machine's folders; a model saved again keeps its first encoder's name."""
    first = encoder.folder.read_json("layerwise.json").get("encoder")
    name = str(first or encoder.name)
    return Path(name).name if Path(name).is_dir() or name.startswith(("/", ".", "~")) else name


def _original_depth(encoder: LayerEncoder) -> int:
    """Return the depth of the original encoder, preserved through repeated saving."""
    blocks = encoder.folder.read_json("layerwise.json").get("blocks") or {}
    return int(blocks.get("of", encoder.loaded_depth))
