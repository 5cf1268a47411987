"""Reading a model: the mix, heads and prompts of a sentence-transformers folder."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from layerwise.encoder import ModelFolder
from layerwise.errors import LayerwiseError, MixError, ModelError
from layerwise.mixes import Mean, Mix, parse_mix
from layerwise.model.head import ACTIVATIONS, FlowHead, Head
from layerwise.model.parts import ModelParts
from layerwise.model.sentence_transformer import HOST_MODES
from layerwise.postprocess import FlowNetwork, read_records

_ORDER = re.compile(r"((WeightedLayerPooling )?Pooling|MixPooling)( Dense| FlowTransform)*( Normalize)?")
_OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_MOST_LAYERS = 1024


def load_parts(folder: ModelFolder) -> ModelParts:
    """Read a folder's modules in their order, without running any of them."""
    try:
        return _load_parts(folder)
    except LayerwiseError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ModelError(
            f"{folder.root}: layerwise.json, modules.json or a module holds a value of another kind ({reason}); copy "
            f"or download the folder again"
        ) from error


def _load_parts(folder: ModelFolder) -> ModelParts:
    settings, facts = folder.read_json("config_sentence_transformers.json"), folder.read_json("layerwise.json")
    parts = ModelParts(
        prompts={str(name): str(text) for name, text in (settings.get("prompts") or {}).items() if text is not None},
        default_prompt_name=_text_or_none(settings, "default_prompt_name"),
        similarity=settings.get("similarity_fn_name") or "cosine",
        truncate_dim=_truncate_dim(folder, settings.get("truncate_dim")),
        chosen=str(facts.get("chosen", "as the model was saved")),
        fitted_on=read_records(folder),
        training=dict(facts.get("training") or {}),
    )
    _check_order(folder)
    for module in folder.modules[1:]:
        if _kind(module) not in _READERS:
            raise ModelError(
                f"{folder.root}: its module {module['type']} is not known here; known: {', '.join(sorted(_READERS))}"
            )
        parts = _READERS[_kind(module)](parts, folder, str(module.get("path", "")))
    return replace(parts, mix=_exact(parts.mix, str(facts.get("mix", ""))))


def _truncate_dim(folder: ModelFolder, value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    path = folder.root / "config_sentence_transformers.json"
    raise ModelError(f"{path}: truncate_dim is {value!r}; expected a number of dimensions")


def _text_or_none(settings: dict[str, Any], key: str) -> str | None:
    value = settings.get(key)
    return None if value is None else str(value)


def _kind(module: dict[str, Any]) -> str:
    return str(module["type"]).rsplit(".", 1)[-1]


def _check_order(folder: ModelFolder) -> None:
    """Raise for modules in an order that differs from ours."""
    kinds = " ".join(map(_kind, folder.modules[1:]))
    known = all(_kind(module) in _READERS for module in folder.modules[1:])
    if folder.modules and known and not _ORDER.fullmatch(kinds):
        raise ModelError(
            f"{folder.root}: its modules come as {kinds or 'nothing'}; supported are [WeightedLayerPooling] Pooling "
            f"or MixPooling, then any Dense or FlowTransform, then [Normalize]"
        )


def _exact(mix: Mix, written: str) -> Mix:
    """Return the mix of layerwise.json if the modules differ from it only by float32 rounding of the weights."""
    if not mix.is_native or ":" not in str(mix) or ":" not in written:
        return mix
    exact = parse_mix(written)
    if exact.terms is None or mix.terms is None or [v for v, *_ in exact.terms] != [v for v, *_ in mix.terms]:
        return mix
    same = all(abs(a - b) < 1e-6 for (_, a, _), (_, b, _) in zip(mix.terms, exact.terms, strict=True))
    return exact if same else mix


def _read_layer_weights(parts: ModelParts, folder: ModelFolder, path: str) -> ModelParts:
    start = int(folder.read_json(path, "config.json").get("layer_start", 4))
    values = _tensors(folder.root / path)["layer_weights"].flatten().tolist()
    return replace(parts, mix=Mean.weighted({start + number: value for number, value in enumerate(values)}))


def _read_pooling(parts: ModelParts, folder: ModelFolder, path: str) -> ModelParts:
    config = folder.read_json(path, "config.json")
    mode = config.get("pooling_mode") or [new for old, new in _OLD_MODES.items() if config.get(old)]
    modes = [mode] if isinstance(mode, str) else list(mode)
    names = {host_mode: name for name, host_mode in HOST_MODES.items()}
    if len(modes) != 1 or modes[0] not in names:
        raise ModelError(f"{folder.root / path}: pooling {'+'.join(modes)} is not one of {', '.join(sorted(names))}")
    if config.get("include_prompt") is False:
        raise ModelError(f"{folder.root / path}: pooling without the prompt's tokens is not supported")
    return replace(parts, mix=parts.mix.with_pooling(names[modes[0]]))


def _read_mix(parts: ModelParts, folder: ModelFolder, path: str) -> ModelParts:
    place, config = folder.root / path, folder.read_json(path, "config.json")
    if "mix" not in config:
        raise ModelError(f"{place / 'config.json'}: no mix; the folder is incomplete, save it again")
    mix = parse_mix(str(config["mix"]))
    if not 1 <= int(config.get("depth", 0)) <= _MOST_LAYERS:
        raise ModelError(f"{place}: depth is {config.get('depth')}; expected 1 to {_MOST_LAYERS}")
    try:
        has_weights = mix.is_learned or mix.components is not None or (place / "model.safetensors").is_file()
        mix = mix.resolve(int(config["depth"])).with_weights(_tensors(place) if has_weights else {})
    except MixError as error:
        raise ModelError(f"{place}: the mix or its weights are damaged ({error}); save it again") from error
    width = config.get("word_embedding_dimension")
    if mix.fitted is not None and mix.fitted.width != width:
        raise ModelError(
            f"{place}: its weights are for layers of {mix.fitted.width} numbers, but config says {width!r}"
        )
    return replace(parts, mix=mix)


def _read_dense(parts: ModelParts, folder: ModelFolder, path: str) -> ModelParts:
    config = folder.read_json(path, "config.json")
    named = str(config.get("activation_function", "Tanh")).rsplit(".", 1)[-1]
    known = {kind.__name__: name for name, kind in ACTIVATIONS.items()}
    plain = config.get("module_input_name", "sentence_embedding") == "sentence_embedding"
    if named not in known or not plain or config.get("use_residual"):
        raise ModelError(f"{folder.root / path}: only Dense on the embedding with {', '.join(known)} is supported")
    tensors = _tensors(folder.root / path)
    head = Head(tensors["linear.weight"], tensors.get("linear.bias"), activation=known[named])
    return replace(parts, heads=(*parts.heads, head))


def _read_flow(parts: ModelParts, folder: ModelFolder, path: str) -> ModelParts:
    config, tensors = folder.read_json(path, "config.json"), _tensors(folder.root / path)
    _check_size(folder.root / path, config, tensors, ("width", "hidden", "blocks"))
    try:
        network = FlowNetwork(**config)
        network.load_state_dict(tensors)
    except (TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{folder.root / path}: not a flow of this version ({reason}); save it again") from error
    return replace(parts, heads=(*parts.heads, FlowHead(network)))


def _read_normalize(parts: ModelParts, folder: ModelFolder, path: str) -> ModelParts:  # noqa: ARG001
    return replace(parts, normalize=True)


def _check_size(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], keys: Sequence[str]) -> None:
    """Raise for a network larger than its weights, before memory is allocated for it."""
    largest = max((size for tensor in tensors.values() for size in (*tensor.shape, len(tensors))), default=0)
    for key in keys:
        if type(config.get(key)) is not int or not 1 <= config[key] <= largest:
            raise ModelError(f"{folder}: {key} is {str(config.get(key))[:40]}, but its weights have at most {largest}")


def _tensors(folder: Path) -> dict[str, Tensor]:
    path = folder / "model.safetensors"
    if not path.is_file():
        raise ModelError(f"{path}: missing; the folder is incomplete or pickled, save it again with safetensors")
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except SafetensorError as error:
        raise ModelError(f"{path}: cannot be read ({error}); copy or download it again") from error
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ModelError(f"{path}: {name} holds NaN or infinite numbers; copy or download it again")
    return tensors


_READERS: dict[str, Callable[[ModelParts, ModelFolder, str], ModelParts]] = {
    "WeightedLayerPooling": _read_layer_weights,
    "Pooling": _read_pooling,
    "MixPooling": _read_mix,
    "Dense": _read_dense,
    "FlowTransform": _read_flow,
    "Normalize": _read_normalize,
}
