"""Numbers against transformers directly, where models, padding, precision or texts are unusual."""

import json

import numpy as np
import pytest
import torch
import transformers as hf
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as host

from layerwise import LayerEncoder, LayerModel, LayerTransformer
from layerwise.encoder import POOLINGS, TappedLayers, Tokens, UntappedLayers, token_batches
from layerwise.errors import ModelError
from support.slow_cases import covering, one_in
from support.tiny import SENTENCES, VOCABULARY, tiny_model, tiny_tokenizer

SIZE = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 4, "num_heads": 4, "decoder_start_token_id": 0}
PARTS = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
RIGHT = {
    "t5": lambda: hf.T5Config(vocab_size=len(VOCABULARY), pad_token_id=0, **T5),
    "xlnet": lambda: hf.XLNetConfig(vocab_size=len(VOCABULARY), d_model=32, n_layer=4, n_head=4, d_inner=48),
    "longformer": lambda: hf.LongformerConfig(**SIZE, attention_window=[8] * 4),
    "qwen3": lambda: hf.Qwen3Config(**SIZE, num_key_value_heads=2, head_dim=8, bos_token_id=2, eos_token_id=3),
    "esm": lambda: hf.EsmConfig(**SIZE, position_embedding_type="rotary", mask_token_id=4),
    "xlm": lambda: hf.XLMConfig(
        vocab_size=len(VOCABULARY), emb_dim=32, n_layers=4, n_heads=4, max_position_embeddings=64, pad_index=0
    ),
}
PADDED_OTHERWISE = {
    "fnet": lambda: hf.FNetConfig(
        vocab_size=len(VOCABULARY), hidden_size=32, num_hidden_layers=4, intermediate_size=48, pad_token_id=0
    ),
    "convbert": lambda: hf.ConvBertConfig(**SIZE, embedding_size=32, head_ratio=2, conv_kernel_size=3),
}
REFUSED = {
    "bart is an encoder with a decoder, of which only T5 and its like": lambda: hf.BartConfig(
        vocab_size=len(VOCABULARY), d_model=32, max_position_embeddings=64, bos_token_id=2, eos_token_id=3, **PARTS
    ),
    "NystromformerModel does not run as an encoder of sentences": lambda: hf.NystromformerConfig(
        **SIZE, num_landmarks=4, segment_means_seq_len=64
    ),
    "CanineModel has no embedding of its tokens": lambda: hf.CanineConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, num_hash_buckets=64
    ),
}


def saved(model, folder, **changes):
    model.save_pretrained(folder)
    tiny_tokenizer(40).save_pretrained(folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | changes))
    return folder


def made(config):
    torch.manual_seed(0)
    model = hf.AutoModel.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.2)
    return model


def one_at_a_time(model, encoder, texts, pooling="mean"):
    """Every layer of every text by transformers alone, without padding."""
    stack = model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model
    rows = []
    for text in texts:
        ids = encoder.tokenizer(text, return_tensors="pt", truncation=True, max_length=encoder.max_length)["input_ids"]
        with torch.inference_mode():
            output = stack(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
        states = [*output.hidden_states[:-1], output.last_hidden_state]
        pooled = {"mean": lambda s: s.mean(1), "cls": lambda s: s[:, 0], "max": lambda s: s.amax(1)}[pooling]
        rows.append(torch.stack([pooled(layer)[0] for layer in states]).numpy())
    return np.array(rows)


@pytest.mark.parametrize("name", one_in(2, [*RIGHT, *PADDED_OTHERWISE]))
def test_every_layer_is_that_of_the_sentence_alone(name, tmp_path):
    model = made({**RIGHT, **PADDED_OTHERWISE}[name]())
    encoder = LayerEncoder(saved(model, tmp_path), device="cpu")
    assert np.allclose(encoder.encode_layers(SENTENCES), one_at_a_time(model, encoder, SENTENCES), atol=1e-4)
    assert encoder.reader.ignores_padding == (name in RIGHT)
    assert isinstance(encoder.reader, UntappedLayers if name in ("xlnet", "longformer") else TappedLayers)


@pytest.mark.parametrize(("name", "mix"), one_in(2, covering(RIGHT, ["last", "1,2"])))
def test_unusual_encoders_are_saved_for_the_host(name, mix, tmp_path):
    model = LayerModel(LayerEncoder(saved(made(RIGHT[name]()), tmp_path / "encoder"), device="cpu"), mix)
    model.save(tmp_path / "saved")
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(SENTENCES)
    assert np.allclose(model.encode(SENTENCES), theirs, atol=1e-4)


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_read_is_refused_in_one_line(message, tmp_path):
    folder = saved(made(REFUSED[message]()), tmp_path)
    with pytest.raises(ModelError, match=message) as refused:
        LayerEncoder(folder, device="cpu").encode_layers(SENTENCES)
    assert len(str(refused.value).splitlines()) == 1


def test_batches_without_padding_have_one_length():
    ids = [[1] * length for length in (3, 5, 3, 1, 5, 5, 2, 3)]
    parts = list(token_batches(Tokens.of(ids), budget=10, may_pad=False))
    assert [part.lengths.tolist() for part in parts] == [[5, 5], [5], [3, 3, 3], [2], [1]]
    assert sorted(row for part in parts for row in part.rows) == list(range(8))


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_pooling_is_the_same_on_either_side_of_the_padding(pooling):
    states = torch.randn(2, 5, 3)
    right = torch.tensor([[1, 1, 1, 0, 0], [1] * 5])
    left, moved = right.flip(1), states.clone()
    moved[0] = states[0].roll(2, 0)
    assert torch.equal(POOLINGS[pooling](states, right), POOLINGS[pooling](moved, left))


@pytest.mark.parametrize("pooling", ["mean", "weighted-mean", "mean-but-first", "mask"])
def test_training_in_half_precision_pools_in_full(pooling):
    """Autocast would round the products of a pooling, and a head after it takes float32."""
    states = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1, 1, 1, 0, 0], [1] * 5, [1, 1, 0, 0, 0]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pooled = POOLINGS[pooling](states, mask)
    assert torch.equal(pooled, POOLINGS[pooling](states, mask))


@pytest.mark.parametrize("change", one_in(2, [{"padding_side": "left"}, {"pad_token": None}]), ids=["left", "none"])
@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_tokenizers_that_pad_otherwise(name, change, tmp_path):
    model = tiny_model(name)
    encoder = LayerEncoder(saved(model, tmp_path, **change), device="cpu")
    for pooling in ("mean", "cls", "max"):
        expected = one_at_a_time(model, encoder, SENTENCES, pooling)
        assert np.allclose(encoder.encode_layers(SENTENCES, pooling), expected, atol=1e-4)
    for mix in ("last @ cls", "1,2 @ cls", "concat(0,3) @ cls", "1,2 @ max", "wk(start=1)"):
        ours = LayerModel(encoder, mix)
        assert np.allclose(ours.encode(SENTENCES), ours.to_sentence_transformer().encode(SENTENCES), atol=1e-4)
    assert encoder.tokenizer.padding_side == change.get("padding_side", "right")
    assert encoder.tokenizer.pad_token == change.get("pad_token", "[PAD]")


@pytest.fixture
def loud(tmp_path):
    """A BERT whose numbers are beyond float16 in its second layer."""
    model = tiny_model("bert")
    with torch.no_grad():
        model.encoder.layer[1].output.LayerNorm.weight.fill_(1e6)
    return saved(model, tmp_path)


def test_numbers_that_overflow_half_precision_are_told(loud):
    message = "7 of 7 embeddings have NaN or infinite numbers in float16; use dtype bfloat16 or float32"
    model = LayerModel.load(loud, mix="2", device="cpu", dtype="float16")
    with pytest.raises(ModelError, match=message):
        model.encode(SENTENCES)
    with pytest.raises(ModelError, match=message):
        LayerTransformer(model, cache=True).fit_transform(SENTENCES)
    for dtype in ("bfloat16", "float32"):
        assert np.isfinite(LayerModel.load(loud, mix="2", device="cpu", dtype=dtype).encode(SENTENCES)).all()


def test_layers_below_those_that_overflow_are_read_with_a_warning(loud, caplog):
    encoder = LayerEncoder(loud, device="cpu", dtype="float16")
    views = encoder.encode_layers(SENTENCES)
    assert np.isfinite(views[:, :2]).all()
    assert "NaN or infinite numbers in layers 2" in caplog.text
    assert "use dtype bfloat16 or float32" in caplog.text
    assert isinstance(encoder.reader, TappedLayers)


ODD = [
    "",
    " \n",
    "a",
    "[SEP]",
    "[CLS] [SEP]",
    "[PAD]",
    "\u200b",
    "\x00",
    "rain " * 100_000,
    "x" * 100_000,
    "rain",
    "rain",
]


@pytest.mark.parametrize("name", one_in(3, ["bert", "roberta", "modernbert"]))
def test_odd_texts(name, tiny_folders):
    encoder = LayerEncoder(tiny_folders[name], device="cpu")
    expected = one_at_a_time(tiny_model(name), encoder, ODD)
    assert np.allclose(encoder.encode_layers(ODD), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        (
            lambda _: [host.StaticEmbedding(tiny_tokenizer().backend_tokenizer, embedding_dim=8)],
            "StaticEmbedding, which",
        ),
        (lambda _: [host.BoW(["rain", "door"])], "BoW, which has no layers"),
        (lambda folder: [host.Transformer(folder, transformer_task="fill-mask")], "made for 'fill-mask'"),
    ],
)
def test_folders_that_begin_without_layers_are_refused(modules, message, tiny_bert, tmp_path):
    SentenceTransformer(modules=modules(str(tiny_bert)), device="cpu").save(str(tmp_path / "model"))
    with pytest.raises(ModelError, match=message):
        LayerModel.load(tmp_path / "model", device="cpu")
