"""Encoders of a few thousand parameters, and a tokenizer that knows some words."""

from pathlib import Path

import torch
import transformers as hf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

SENTENCES = [
    "The river rose after three days of rain.",
    "Rain.",
    "She repaired the old clock in the kitchen and it has kept perfect time ever since that day in March.",
    "Who left the door open?",
    "Prices fell, and nobody was surprised by it.",
    "The door was left open by someone in the kitchen.",
    "an old river an old clock an old door",
]
WORDS = sorted({word.strip(".,?") for sentence in SENTENCES for word in sentence.lower().split()})
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = {token: number for number, token in enumerate([*SPECIAL, *WORDS, *"abcdefghijklmnopqrstuvwxyz", *".,?!"])}
DEPTH, WIDTH, POSITIONS = 4, 32, 64

_SIZE = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": WIDTH,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": 0,
}
_MODERN = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3, "local_attention": 8}
ARCHITECTURES = {
    "bert": lambda: hf.BertConfig(**_SIZE),
    "roberta": lambda: hf.RobertaConfig(**_SIZE),
    "xlm-roberta": lambda: hf.XLMRobertaConfig(**_SIZE),
    "electra": lambda: hf.ElectraConfig(**_SIZE, embedding_size=16),
    "mpnet": lambda: hf.MPNetConfig(**_SIZE),
    "distilbert": lambda: hf.DistilBertConfig(
        vocab_size=len(VOCABULARY), dim=WIDTH, n_layers=DEPTH, n_heads=4, hidden_dim=48, max_position_embeddings=64
    ),
    "albert": lambda: hf.AlbertConfig(**_SIZE, embedding_size=16, num_hidden_groups=1),
    "deberta-v2": lambda: hf.DebertaV2Config(
        **_SIZE, relative_attention=True, position_buckets=16, conv_kernel_size=3, pos_att_type=["p2c", "c2p"]
    ),
    "modernbert": lambda: hf.ModernBertConfig(**_SIZE, **_MODERN),
}
_SPARE = {"vocab_size": len(VOCABULARY) + 8}  # their tokenizers' classes add tokens of their own
_DECODER = _SIZE | _SPARE | {"bos_token_id": None, "eos_token_id": 3, "pad_token_id": None}
_GROUPED = _DECODER | {"num_key_value_heads": 2, "head_dim": 8}
_GPT2 = _SPARE | {"n_embd": WIDTH, "n_layer": DEPTH, "n_head": 4, "n_positions": POSITIONS}
_T5 = _SPARE | {"d_model": WIDTH, "d_ff": 48, "num_layers": DEPTH, "num_heads": 4, "d_kv": 8}
DECODERS = {
    "llama": lambda: hf.LlamaConfig(**_GROUPED),
    "mistral": lambda: hf.MistralConfig(**_GROUPED, sliding_window=6),
    "qwen2": lambda: hf.Qwen2Config(**_DECODER, num_key_value_heads=2),
    "qwen3": lambda: hf.Qwen3Config(**_GROUPED),
    "gemma3": lambda: hf.Gemma3TextConfig(
        **_GROUPED, sliding_window=6, layer_types=["sliding_attention"] * 3 + ["full_attention"]
    ),
    "gpt2": lambda: hf.GPT2Config(**_GPT2, bos_token_id=None, eos_token_id=3),
    "gpt-neox": lambda: hf.GPTNeoXConfig(**_DECODER),
    "opt": lambda: hf.OPTConfig(**_DECODER | {"pad_token_id": 0}, ffn_dim=48, word_embed_proj_dim=WIDTH),
    "phi": lambda: hf.PhiConfig(**_DECODER),
    "t5": lambda: hf.T5Config(**_T5, pad_token_id=0, eos_token_id=3, decoder_start_token_id=0),
}


def tiny_tokenizer(max_length: int = POSITIONS - 4) -> hf.PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordPiece(VOCABULARY, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=backend, mask_token="[MASK]", model_max_length=max_length, **names
    )


def tiny_model(name: str, seed: int = 0) -> torch.nn.Module:
    """A model with weights large enough that layers differ clearly."""
    torch.manual_seed(seed)
    model = hf.AutoModel.from_config(ARCHITECTURES[name]())
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.2)
    return model.eval()


def save_tiny(name: str, folder: Path) -> Path:
    tiny_model(name).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


CHAT = "{% for message in messages %}<{{ message.role }}> {{ message.content }} {% endfor %}<assistant> "


def decoder_tokenizer(max_length: int = POSITIONS) -> hf.PreTrainedTokenizerFast:
    """As many decoders have it: no mask, nothing to pad with, no special tokens around a text; with a chat template."""
    backend = Tokenizer(models.WordPiece(VOCABULARY, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=max_length, unk_token="[UNK]")
    tokenizer.chat_template = CHAT
    return tokenizer


def save_decoder(name: str, folder: Path) -> Path:
    """A decoder with large weights; of T5, its encoder."""
    torch.manual_seed(0)
    config = DECODERS[name]()
    model = hf.T5EncoderModel(config) if name == "t5" else hf.AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.2)
    model.eval().save_pretrained(folder)
    decoder_tokenizer().save_pretrained(folder)
    return folder
