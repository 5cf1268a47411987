"""The model card: what the model is, how its mix was chosen, how to use it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from layerwise.errors import printable
from layerwise.model.head import FlowHead
from layerwise.model.parts import ModelParts
from layerwise.model.sentence_transformer import is_native
from layerwise.version import __version__

_TAGS = ["sentence-transformers", "feature-extraction", "sentence-similarity", "layerwise"]


@dataclass(frozen=True)
class CardFacts:
    """Return the card's facts about the encoder: its public name, kept blocks, and sizes."""

    encoder: str
    depth: int
    blocks: int
    width: int
    max_length: int


def model_card(facts: CardFacts, parts: ModelParts) -> str:
    """Markdown with the metadata that the hub reads."""
    data = ModelCardData(
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=_TAGS,
        base_model=facts.encoder if _may_be_hub_name(facts.encoder) else None,
    )
    return str(ModelCard(f"---\n{data.to_yaml()}\n---\n{_text(facts, parts)}"))


def _text(facts: CardFacts, parts: ModelParts) -> str:
    native = is_native(parts.mix, parts.heads)
    trust = "" if native else ", trust_remote_code=True"
    needs = "" if native else "\nIt needs the package too: `pip install layerwise`.\n"
    return f"""
# Sentence embeddings from layers {parts.mix}

| | |
|---|---|
{_rows(_summary(facts, parts))}
## Use
{needs}
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path or name"{trust})
embeddings = model.encode(["A sentence.", "Another one."])
```

or, with access to every layer:

```python
from layerwise import LayerModel

model = LayerModel.load("path or name")
```

{_training(parts.training)}Made with layerwise {__version__}.
"""


def _summary(facts: CardFacts, parts: ModelParts) -> Iterator[tuple[str, str]]:
    mix = str(parts.mix).replace("|", "\\|")  # a bare one would end the cell
    flows = sum(isinstance(head, FlowHead) for head in parts.heads)
    linear = len(parts.heads) - flows
    embedding = [f"{facts.width} numbers"]
    embedding += [f"{linear} linear layer(s) after the mix"] * bool(linear)
    embedding += [f"{flows} flow(s) after the mix"] * bool(flows)
    embedding += ["embeddings of length 1"] * parts.normalize
    yield "encoder", cell(facts.encoder)
    yield "layer mix", f"`{mix}` (layer 0 = embeddings, {facts.depth} = the encoder's last)"
    yield "how it was chosen", cell(parts.chosen)
    yield "blocks kept", f"{facts.blocks} of {facts.depth}" if facts.blocks < facts.depth else f"all {facts.depth}"
    yield "embedding", "; ".join(embedding)
    yield "longest input", f"{facts.max_length} tokens; longer text is cut there"
    for record in parts.fitted_on:
        yield "fitted on", cell(f"{record.what}: {record}")
    if parts.mix.is_learned and parts.mix.fitted is not None:
        size = sum(parameter.numel() for parameter in parts.mix.fitted.parameters())
        yield "trained weights of the mix", f"{size:,}"


def _may_be_hub_name(encoder: str) -> bool:
    """Whether a name may be a hub name; local paths must not be published."""
    return encoder.count("/") == 1 and not encoder.startswith((".", "/", "~"))


def _training(facts: Mapping[str, Any]) -> str:
    """Build the section on the training, if any."""
    if not facts:
        return ""
    return f"""## Training

As recorded by the training; scores are of the model as it was trained, not of a mix or head chosen later.

| key | value |
|---|---|
{_rows((cell(key), cell(value)) for key, value in fact_rows(facts))}
"""


def _rows(rows: Iterable[tuple[str, str]]) -> str:
    return "".join(f"| {label} | {text} |\n" for label, text in rows)


def cell(text: str) -> str:
    """Escape a user's text for a table cell: no markup, no control characters."""
    return printable(" ".join(text.replace("|", "/").split())).replace("&", "&amp;").replace("<", "&lt;")


def fact_rows(facts: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Flatten nested facts to rows such as ("scores.STS-B", "80.1"); lists of plain values are one row."""
    return tuple(_nested_rows(facts, ""))


def _nested_rows(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _nested_rows(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        for number, item in enumerate(value):
            yield from _nested_rows(item, f"{key}.{number}")
    elif key:
        yield key, _value_text(value)


def _value_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_value_text, value)) or "none"
    if value is None or value == {}:
        return "none"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)
