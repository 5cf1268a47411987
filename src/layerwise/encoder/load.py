"""Loads model and tokenizer from a folder: safetensors only, no remote code unless allowed, no random weights."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import normalizers
from torch import nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

from layerwise.encoder.folders import ModelFolder, read_model_json
from layerwise.errors import ModelError, UnsafeModelError, is_memory_shortage
from layerwise.muted import quiet
from layerwise.registry import check_known

_LONGEST = 1_000_000  # for tokenizers and models without a limit
_MOST_LAYERS = 1024
_MOST_GROWTH = 1000  # characters per input character; SentencePiece's rules produce up to 18
_SLACK = 1 << 24  # parameters a model may have beyond the saved weights: position tables, a pooler that was not saved
_ATTENTIONS = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flash_attention_4", "flex_attention")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class LoadedEncoder:
    """A model in evaluation mode, its tokenizer, and the maximum number of tokens of a sentence."""

    model: nn.Module
    tokenizer: Any
    max_length: int


def load_encoder(folder: ModelFolder, *, dtype: str, device: torch.device, trust_remote_code: bool) -> LoadedEncoder:
    """Load the transformer of a model folder."""
    check_known(dtype, DTYPES, "dtype")
    if not trust_remote_code:
        _check_config(folder.encoder)
    model = _load_model(folder.encoder, DTYPES[dtype], trust_remote_code)
    tokenizer = _load_tokenizer(folder.encoder, trust_remote_code)
    if _sentence_bert_config(folder).get("do_lower_case"):
        _lower_case(tokenizer)
    _check_fit(folder.encoder, model, tokenizer)
    length = _max_length(model, tokenizer, folder)
    if tokenizer.num_special_tokens_to_add() > length:
        raise ModelError(
            f"{folder.encoder}: the tokenizer adds {tokenizer.num_special_tokens_to_add()} special tokens to a text, "
            f"but the model takes {length} in all; the folder mixes files of two models"
        )
    if getattr(model.config, "use_cache", False):
        model.config.use_cache = False  # type: ignore[union-attr] # no next token is generated, so a decoder needs no key-value cache
    return LoadedEncoder(model.to(device).eval(), tokenizer, length)


def pick_device(device: str | torch.device | None) -> torch.device:
    """Return the requested device; by default a GPU if there is one."""
    if device is not None:
        try:
            selected = torch.device(device)
            torch.empty(0, device=selected)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ModelError(f"device {str(device)!r} cannot be used here: {reason}; try --device cpu") from error
        return selected
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _load_model(path: Path, dtype: torch.dtype, trust_remote_code: bool) -> nn.Module:
    from safetensors import SafetensorError
    from transformers import AutoConfig

    try:
        with quiet():
            config = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code, local_files_only=True)
            forget_gguf(config)
            if not trust_remote_code:
                _check_size(path, config)
            model, report = _model_class(path, config).from_pretrained(
                path,
                config=config,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
                local_files_only=True,
            )
    except SafetensorError as error:
        raise ModelError(f"{path}: the weights cannot be read ({error}); copy or download them again") from error
    except ModelError:
        raise
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise UnsafeModelError(
                f"{path}: this model brings code, which is not run unless you trust it: trust_remote_code=True"
            ) from error
        raise ModelError(f"{path}: transformers cannot load this model: {_first_line(error)}") from error
    missing = sorted(key for key in report["missing_keys"] if not _is_pooler(key))
    if missing:
        raise ModelError(
            f"{path}: the weights lack {len(missing)} of the model's tensors, e.g. {missing[0]}; "
            f"they belong to another config.json or the file is incomplete"
        )
    if report["missing_keys"]:  # a masked language model has no pooler: unused weights are zeros instead of noise
        for key in report["missing_keys"]:
            model.get_parameter(key).data.zero_()
    if dtype == torch.float32:  # in half precision large weights may overflow, which is checked on the embeddings
        _check_finite(path, model)
    return model  # type: ignore[no-any-return]


def forget_gguf(config: Any) -> None:
    """Remove a GGUF quantization config: the converted weights are not quantised, but could not be saved with it."""
    settings = getattr(config, "quantization_config", None)
    method = settings.get("quant_method") if isinstance(settings, dict) else getattr(settings, "quant_method", None)
    if method == "gguf":
        del config.quantization_config


def _model_class(path: Path, config: Any) -> Any:
    """Return `AutoModel`, or `AutoModelForTextEncoding` for encoder-decoder models such as T5."""
    from transformers import MODEL_FOR_TEXT_ENCODING_MAPPING, AutoModel, AutoModelForTextEncoding

    is_encoder_only = any(str(name).endswith("EncoderModel") for name in getattr(config, "architectures", None) or ())
    if is_encoder_only and type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING:
        return AutoModelForTextEncoding
    if not getattr(config, "is_encoder_decoder", False):
        return AutoModel
    if type(config) not in MODEL_FOR_TEXT_ENCODING_MAPPING:
        raise ModelError(
            f"{path}: {config.model_type} is an encoder with a decoder, of which only T5 and its like are supported"
        )
    return AutoModelForTextEncoding


def _check_config(path: Path) -> None:
    """Raise for settings with which transformers would fetch and run code, or build a model of arbitrary depth."""
    config = read_model_json(path / "config.json")
    for key, value in _settings(config):
        if key.endswith("attn_implementation") and value not in (None, *_ATTENTIONS):
            raise UnsafeModelError(
                f"{path / 'config.json'}: {key} is {value!r}, which may be code of the hub; known: "
                f"{', '.join(_ATTENTIONS)}"
            )
        is_depth = key in ("num_hidden_layers", "n_layers", "num_layers") and isinstance(value, int)
        if is_depth and not 1 <= value <= _MOST_LAYERS:
            raise UnsafeModelError(f"{path / 'config.json'}: {key} is {value}; expected 1 to {_MOST_LAYERS}")


def _settings(value: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over all keys and values of a config, nested ones included."""
    todo = [value]
    while todo:
        inner = todo.pop()
        if isinstance(inner, dict):
            yield from inner.items()
            todo += inner.values()
        elif isinstance(inner, list):
            todo += inner


def _check_size(path: Path, config: Any) -> None:
    """Raise if config.json describes a much larger model than the weights, before memory is allocated for it."""
    from safetensors import safe_open
    from transformers import AutoModel
    from transformers.initialization import no_init_weights

    files = list(path.glob("*.safetensors"))
    numbers = sum(file.stat().st_size for file in files) + _SLACK  # at least one byte each
    tensors = 0
    for file in files:
        with safe_open(file, framework="pt") as weights:
            tensors += len(weights.keys())
    with _counted(path, numbers=numbers, tensors=2 * tensors + 64), no_init_weights(), torch.device("meta"):
        AutoModel.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]


@contextmanager
def _counted(path: Path, *, numbers: int, tensors: int) -> Iterator[None]:
    """Abort the construction of a model, in this thread, that exceeds these numbers of values or tensors."""
    thread, built = threading.get_ident(), {"numbers": 0, "tensors": 0}

    def count(_module: nn.Module, _name: str, tensor: torch.Tensor | None) -> None:
        if tensor is None or threading.get_ident() != thread:
            return
        built["numbers"] += tensor.numel()
        built["tensors"] += 1
        if built["numbers"] > numbers or built["tensors"] > tensors:
            raise UnsafeModelError(
                f"{path}: config.json describes a model much larger than its weights; they belong to another "
                f"config.json or the file is incomplete"
            )

    hooks = [register_module_parameter_registration_hook(count), register_module_buffer_registration_hook(count)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _check_finite(path: Path, model: nn.Module) -> None:
    for name, weight in model.named_parameters():
        if weight.numel() and not all(map(torch.isfinite, torch.aminmax(weight.detach()))):
            raise ModelError(f"{path}: the weights hold NaN or infinite numbers, e.g. in {name}; download them again")


def _load_tokenizer(path: Path, trust_remote_code: bool) -> Any:
    from transformers import AutoTokenizer

    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code, local_files_only=True)
    except Exception as error:
        raise ModelError(f"{path}: the tokenizer cannot be loaded: {_first_line(error)}") from error
    if not isinstance(tokenizer.model_max_length, int | float):
        raise ModelError(f"{path}: the tokenizer's model_max_length is {tokenizer.model_max_length!r}, no number")
    return tokenizer


def _check_growth(path: Path, normalizer: Any) -> None:
    """Raise if the normalizer's replacements could lengthen a text by more than a factor of `_MOST_GROWTH`."""
    growth = 1.0
    for rule in _rules(normalizer):
        pattern, content = rule.get("pattern"), rule.get("content")
        if isinstance(pattern, dict) and isinstance(content, str):
            shortest = len(pattern.get("String") or "")  # a regex may match the empty string between all characters
            growth *= max(1.0, len(content) / shortest if shortest else 1 + len(content))
    if growth > _MOST_GROWTH:
        raise UnsafeModelError(
            f"{path / 'tokenizer.json'}: its normalizer can make {growth:.0e} letters of one; more than "
            f"{_MOST_GROWTH:,} is refused"
        )


def _rules(normalizer: Any) -> Iterator[dict[str, Any]]:
    """Iterate over a normalizer and all nested ones."""
    if isinstance(normalizer, dict):
        yield normalizer
        for inner in normalizer.get("normalizers") or ():
            yield from _rules(inner)


def _check_fit(path: Path, model: nn.Module, tokenizer: Any) -> None:
    try:
        vocabulary, rows = len(tokenizer), int(model.get_input_embeddings().num_embeddings)  # type: ignore[operator]
    except NotImplementedError as error:
        raise ModelError(f"{path}: {type(model).__name__} has no embedding of its tokens, not supported") from error
    if vocabulary > rows:
        raise ModelError(
            f"{path}: the tokenizer has {vocabulary} tokens but the model only {rows}; "
            f"the folder mixes files of two models"
        )
    try:
        encoded = tokenizer("a b")
        ids = encoded["input_ids"]
    except BaseException as error:  # a Rust panic in tokenizers is not an Exception
        raise _broken_tokenizer(path, error) from error
    if not ids or not all(0 <= token < rows for token in ids):
        raise ModelError(f"{path}: the tokenizer makes {ids[:8]} of two letters, which the model has no vectors for")
    if max(tokenizer.get_vocab().values(), default=0) >= rows:
        raise ModelError(f"{path}: the tokenizer has tokens beyond the {rows} of the model; it is of another model")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and backend.normalizer is not None:
        _check_growth(path, json.loads(backend.normalizer.__getstate__()))
    if any(encoded.get("token_type_ids", [])):
        raise ModelError(f"{path}: its tokenizer gives single sentences token types other than 0, not supported")


def _broken_tokenizer(path: Path, error: BaseException) -> BaseException:
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return error
    return ModelError(f"{path}: the tokenizer cannot be used: {_first_line(error)}")


def _max_length(model: nn.Module, tokenizer: Any, folder: ModelFolder) -> int:
    """Return the smallest limit of model, tokenizer and folder; RoBERTa-like models reserve positions for padding."""
    limits = [int(tokenizer.model_max_length), _LONGEST]
    length = _sentence_bert_config(folder).get("max_seq_length")
    if not isinstance(length, int | None):
        raise ModelError(f"{folder.encoder / 'sentence_bert_config.json'}: max_seq_length is {length!r}, no number")
    if length:
        limits.append(length)
    positions = int(getattr(model.config, "max_position_embeddings", 0) or 0)
    if positions > 0:
        limits.append(positions - _reserved_positions(model))
    return max(1, min(limits))


def _sentence_bert_config(folder: ModelFolder) -> dict[str, Any]:
    return folder.read_json(str(folder.encoder.relative_to(folder.root)), "sentence_bert_config.json")


def _lower_case(tokenizer: Any) -> None:
    """Lower-case texts as sentence-transformers does for old models that set `do_lower_case` in their config."""
    backend = tokenizer.backend_tokenizer
    before = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *before])


def _reserved_positions(model: nn.Module) -> int:
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return 0 if module.padding_idx is None else module.padding_idx + 1
    return 0


def _is_pooler(key: str) -> bool:
    return key.startswith("pooler.")


def _first_line(error: BaseException) -> str:
    if is_memory_shortage(error):
        return "not enough memory; free some, or use a smaller model"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):
        return f"{lines[0]} {lines[1]}"
    return lines[0] if lines else type(error).__name__
