"""`layerwise info MODEL`: what an encoder is, before any sentence is encoded."""

from typing import Any

from layerwise.cli.loading import Loading, loads_model
from layerwise.cli.options import AsJson, Model
from layerwise.cli.screen import human_bytes, print_json, print_table

_FEW_FACTS = 6


@loads_model
def info(
    model: Model = "default",
    as_json: AsJson = False,
    *,
    loading: Loading,
) -> None:
    """Show a model's layers, sizes, mix, and how its layers are read. Sizes in JSON are bytes."""
    from layerwise.model import LayerModel

    loaded = LayerModel.load(model, **loading)
    facts = _facts(loaded)
    if as_json:
        print_json(facts)
    else:
        print_table(("", loaded.encoder.name), [(name.replace("_", " "), _cell(name, facts)) for name in facts])


def _cell(name: str, facts: dict[str, Any]) -> str:
    """Format a fact for display."""
    value = facts[name]
    if name == "layers":
        return f"0 to {value[-1]}"
    if name == "fitted_on":
        texts = (f"{record['what']}: {record['sentences']:,} sentences of {record['source']}" for record in value)
        return "; ".join(texts) or "nothing recorded"
    if name == "training":
        return _training(value)
    if name == "prompts":
        return ", ".join(value) or "none"
    if name == "views_of_1000_sentences":
        return human_bytes(value)
    return str(value)


def _training(facts: dict[str, Any]) -> str:
    """Format a training in one cell: all of few facts, or the most important; the model card has all."""
    from layerwise.model import fact_rows

    rows = fact_rows(facts)
    if len(rows) > _FEW_FACTS:
        keys = ("recipe.name", "text.source", "seed", "steps", "dev.task", "dev.best")
        rows = tuple(row for row in rows if row[0] in keys)
    return "; ".join(": ".join(row) for row in rows) or "nothing recorded"


def _facts(model: Any) -> dict[str, Any]:
    from layerwise.encoder import TappedLayers
    from layerwise.model import is_native

    encoder = model.encoder
    tapped = isinstance(encoder.reader, TappedLayers)
    saved = encoder.folder.read_json("layerwise.json")
    return {
        "name": encoder.name,
        "architecture": type(encoder.model).__name__,
        "layers": list(range(encoder.depth + 1)),
        "depth": encoder.depth,
        "width": encoder.width,
        "parameters": sum(parameter.numel() for parameter in encoder.model.parameters()),
        "vocabulary": len(encoder.tokenizer),
        "max_length": encoder.max_length,
        "mix": str(model.mix),
        "mix_chosen": model.chosen,
        "embedding_width": model.width,
        "normalized": model.normalize,
        "fitted_on": [record.facts() for record in model.fitted_on],
        "training": model.training,
        "prompts": {name: text for name, text in sorted(model.prompts.items()) if text},
        "blocks_kept": saved.get("blocks", {}).get("kept", encoder.depth),
        "blocks_of": saved.get("blocks", {}).get("of", encoder.depth),
        "loads_in_sentence_transformers": is_native(model.mix, model.heads),
        "layers_read_by": "taps (pooled inside the pass)" if tapped else "keeping all hidden states",
        "views_of_1000_sentences": 4000 * (encoder.depth + 1) * encoder.width,
        "device": str(encoder.device),
        "dtype": encoder.dtype,
    }
