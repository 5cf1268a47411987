"""Model and tokenizer from a folder: safetensors only, no remote code unless allowed, no random weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import normalizers
from torch import nn

from layerwise.encoder.folders import ModelFolder
from layerwise.errors import ModelError
from layerwise.muted import quiet
from layerwise.registry import check_known

_LONGEST = 1_000_000  # for tokenizers and models that name no limit
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class LoadedEncoder:
    """A model in evaluation mode, its tokenizer, and the most tokens that a sentence may have."""

    model: nn.Module
    tokenizer: Any
    max_length: int


def load_encoder(folder: ModelFolder, *, dtype: str, device: torch.device, trust_remote_code: bool) -> LoadedEncoder:
    """Load the transformer of a model folder."""
    check_known(dtype, DTYPES, "dtype")
    model = _load_model(folder.encoder, DTYPES[dtype], trust_remote_code)
    tokenizer = _load_tokenizer(folder.encoder, trust_remote_code)
    if _sentence_bert_config(folder).get("do_lower_case"):
        _lower_case(tokenizer)
    _check_fit(folder.encoder, model, tokenizer)
    length = _max_length(model, tokenizer, folder)
    return LoadedEncoder(model.to(device).eval(), tokenizer, length)


def pick_device(device: str | torch.device | None) -> torch.device:
    """The device asked for; without one, a GPU where there is one."""
    if device is not None:
        try:
            picked = torch.device(device)
            torch.empty(0, device=picked)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ModelError(f"device {str(device)!r} cannot be used here: {reason}; try --device cpu") from error
        return picked
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _load_model(path: Path, dtype: torch.dtype, trust_remote_code: bool) -> nn.Module:
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    try:
        with quiet():
            kind = _model_class(path, trust_remote_code)
            model, report = kind.from_pretrained(
                path,
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
    except (OSError, ValueError, KeyError, RuntimeError, StrictDataclassError) as error:
        if "trust_remote_code" in str(error):
            raise ModelError(
                f"{path}: this model brings code, which is not run unless you trust it: trust_remote_code=True"
            ) from error
        raise ModelError(f"{path}: transformers cannot load this model: {_first_line(error)}") from error
    missing = sorted(key for key in report["missing_keys"] if not _is_pooler(key))
    if missing:
        raise ModelError(
            f"{path}: the weights lack {len(missing)} of the model's tensors, e.g. {missing[0]}; "
            f"they belong to another config.json or the file is incomplete"
        )
    if report["missing_keys"]:  # a masked language model has no pooler: zeros keep its unused place, not noise
        for key in report["missing_keys"]:
            model.get_parameter(key).data.zero_()
    return model  # type: ignore[no-any-return]


def _model_class(path: Path, trust_remote_code: bool) -> Any:
    """`AutoModel`; of T5 and its like, whose decoder would ask for text of its own, the class of the encoder alone."""
    from transformers import MODEL_FOR_TEXT_ENCODING_MAPPING, AutoConfig, AutoModel, AutoModelForTextEncoding

    config = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code, local_files_only=True)
    if not getattr(config, "is_encoder_decoder", False):
        return AutoModel
    if type(config) not in MODEL_FOR_TEXT_ENCODING_MAPPING:
        raise ModelError(
            f"{path}: {config.model_type} is an encoder with a decoder, of which only T5 and its like are supported"
        )
    return AutoModelForTextEncoding


def _load_tokenizer(path: Path, trust_remote_code: bool) -> Any:
    from transformers import AutoTokenizer

    try:
        with quiet():
            return AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code, local_files_only=True)
    except Exception as error:
        raise ModelError(f"{path}: the tokenizer cannot be loaded: {_first_line(error)}") from error


def _check_fit(path: Path, model: nn.Module, tokenizer: Any) -> None:
    try:
        words, places = len(tokenizer), int(model.get_input_embeddings().num_embeddings)  # type: ignore[operator]
    except NotImplementedError as error:
        raise ModelError(f"{path}: {type(model).__name__} has no embedding of its tokens, not supported") from error
    if words > places:
        raise ModelError(
            f"{path}: the tokenizer has {words} tokens but the model only {places}; "
            f"the folder mixes files of two models"
        )
    if any(tokenizer("a b").get("token_type_ids", [])):
        raise ModelError(f"{path}: its tokenizer gives single sentences token types other than 0, not supported")


def _max_length(model: nn.Module, tokenizer: Any, folder: ModelFolder) -> int:
    """The smallest of what model, tokenizer and folder say; RoBERTa-like models lose places to padding."""
    limits = [int(tokenizer.model_max_length), _LONGEST]
    length = _sentence_bert_config(folder).get("max_seq_length")
    if not isinstance(length, int | None):
        raise ModelError(f"{folder.encoder / 'sentence_bert_config.json'}: max_seq_length is {length!r}, no number")
    if length:
        limits.append(length)
    positions = int(getattr(model.config, "max_position_embeddings", 0) or 0)
    if positions > 0:
        limits.append(positions - _places_lost(model))
    return max(1, min(limits))


def _sentence_bert_config(folder: ModelFolder) -> dict[str, Any]:
    return folder.read_json(str(folder.encoder.relative_to(folder.root)), "sentence_bert_config.json")


def _lower_case(tokenizer: Any) -> None:
    """As sentence-transformers does for old models whose config, not their tokenizer, asks for lower case."""
    backend = tokenizer.backend_tokenizer
    before = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *before])


def _places_lost(model: nn.Module) -> int:
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return 0 if module.padding_idx is None else module.padding_idx + 1
    return 0


def _is_pooler(key: str) -> bool:
    return key.startswith("pooler.")


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
