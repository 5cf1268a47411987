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
