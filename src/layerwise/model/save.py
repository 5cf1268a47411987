"""Writing a LayerModel: a SentenceTransformer with native modules, only the blocks it needs, and a model card."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerwise.encoder.quiet import quiet
from layerwise.errors import ModelError
from layerwise.mixes import LayerAttention
from layerwise.model.card import CardFacts, model_card
from layerwise.model.cut import cut_to_fit
from layerwise.model.head import FlowHead
from layerwise.model.native import build_sentence_transformer, is_native
from layerwise.model.seen_text import write_seen_text
from layerwise.model.training_facts import fact_rows
from layerwise.version import __version__

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from layerwise.model.layer_model import LayerModel

Extra = Callable[[Path], object]


def to_sentence_transformer(model: "LayerModel") -> "SentenceTransformer":
    """A SentenceTransformer that gives the same embeddings, with no more blocks than the mix needs."""
    return _built(model)[0]


def save(model: "LayerModel", folder: str | os.PathLike[str], *, overwrite: bool, extra: Extra | None = None) -> None:
    """Write the folder beside its place first, then put it there: whole or not at all. `extra` writes more into it."""
    target = Path(folder).expanduser()
    if target.exists() and not target.is_dir():
        raise ModelError(f"{target}: is a file; give a folder")
    if target.is_dir() and any(target.iterdir()):
        if not overwrite:
            raise ModelError(f"{target}: the folder is not empty; give another one, or overwrite it")
        if not (target / "config.json").is_file():
            raise ModelError(f"{target}: holds no model, so it is not overwritten; give another folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as beside:
            new, old = Path(beside) / "new", Path(beside) / "old"
            _write(model, new)
            if extra is not None:
                extra(new)
            if target.exists():
                target.rename(old)
            try:
                new.rename(target)
            except OSError:
                if old.exists():
                    old.rename(target)
                raise
    except OSError as error:
        raise ModelError(f"{target}: can't be written: {error.strerror or error}; nothing was changed there") from error


def push_to_hub(model: "LayerModel", repo_id: str, **options: Any) -> str:
    """Upload what `save` writes."""
    with tempfile.TemporaryDirectory(prefix="layerwise-") as folder:
        st = _write(model, Path(folder))
        address: str = st.push_to_hub(repo_id, local_model_path=folder, **options)
    return address


def _write(model: "LayerModel", folder: Path) -> "SentenceTransformer":
    st, blocks = _built(model)
    with quiet():
        st.save_pretrained(str(folder), create_model_card=False)
    facts = _facts(model, blocks) | {"fitted_on": write_seen_text(folder, model.fitted_on)}
    facts |= {"training": model.training} if model.training else {}
    (folder / "layerwise.json").write_text(json.dumps(facts, indent=2), encoding="utf-8")
    (folder / "README.md").write_text(model_card(_card_facts(model, blocks)), encoding="utf-8")
    return st


def _built(model: "LayerModel") -> tuple["SentenceTransformer", int]:
    encoder = model.encoder
    cut, blocks = cut_to_fit(encoder.model, model.mix.layers, encoder.depth)
    with quiet():
        st = build_sentence_transformer(
            cut,
            encoder.tokenizer,
            mix=model.mix,
            blocks=blocks,
            max_length=encoder.max_length,
            heads=model.heads,
            normalize=model.normalize,
            device=encoder.device,
            prompts=model.prompts,
            default_prompt_name=model.default_prompt_name,
            similarity_fn_name=model.similarity_fn_name,
        )
    return st, blocks


def _facts(model: "LayerModel", blocks: int) -> dict[str, Any]:
    return {
        "layerwise": __version__,
        "encoder": _public_name(model),
        "mix": str(model.mix),
        "chosen": model.chosen,
        "blocks": {"kept": blocks, "of": _original_depth(model)},
    }


def _card_facts(model: "LayerModel", blocks: int) -> CardFacts:
    return CardFacts(
        encoder=_public_name(model),
        mix=str(model.mix),
        chosen=model.chosen,
        blocks=blocks,
        depth=_original_depth(model),
        width=model.width,
        max_length=model.encoder.max_length,
        native=is_native(model.mix, model.heads),
        normalize=model.normalize,
        heads=sum(not isinstance(head, FlowHead) for head in model.heads),
        flows=sum(isinstance(head, FlowHead) for head in model.heads),
        fitted_on=tuple(f"{record.what}: {record}" for record in model.fitted_on),
        trained=_attention_rows(model),
        training=fact_rows(model.training),
    )


def _attention_rows(model: "LayerModel") -> tuple[tuple[str, str], ...]:
    if not isinstance(model.mix, LayerAttention):
        return ()
    size = sum(parameter.numel() for parameter in model.mix.trained.parameters())
    return (("attention over layers", f"{size:,} weights; scores by {model.mix.scores}"),)


def _public_name(model: "LayerModel") -> str:
    """The encoder's name without this machine's folders; a model saved again keeps its first encoder's name."""
    known = model.encoder.folder.read_json("layerwise.json").get("encoder")
    name = str(known or model.encoder.name)
    return Path(name).name if Path(name).is_dir() or name.startswith(("/", ".", "~")) else name


def _original_depth(model: "LayerModel") -> int:
    """How many blocks the first encoder had, through any number of savings."""
    blocks = model.encoder.folder.read_json("layerwise.json").get("blocks") or {}
    return int(blocks.get("of", model.encoder.depth))
