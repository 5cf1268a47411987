"""Numbers and shapes: embeddings against transformers or sentence-transformers directly, scores against SciPy.

All models are tiny and made from configs. What cannot be right must be refused in one line.
"""

import contextlib
import copy
import io
import json
import logging
import pickle
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as hf
from attack import Attack, Tally
from scipy.stats import rankdata, spearmanr

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from layerwise import LayerEncoder, LayerModel, Search
from layerwise.errors import LayerwiseError
from support.tiny import ARCHITECTURES, SENTENCES, VOCABULARY, WORDS, tiny_model, tiny_tokenizer

_SAME = 1e-4
_SIZE = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
_T5 = {"vocab_size": len(VOCABULARY), "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 4, "num_heads": 4}
_T5 |= {"pad_token_id": 0, "decoder_start_token_id": 0}
_ENDS = {"bos_token_id": 2, "eos_token_id": 3}
OTHERS = {
    "t5": lambda: hf.T5Config(**_T5),
    "mt5": lambda: hf.MT5Config(**_T5),
    "umt5": lambda: hf.UMT5Config(**_T5),
    "xlnet": lambda: hf.XLNetConfig(vocab_size=len(VOCABULARY), d_model=32, n_layer=4, n_head=4, d_inner=48),
    "longformer": lambda: hf.LongformerConfig(**_SIZE, attention_window=[8] * 4),
    "gpt2": lambda: hf.GPT2Config(vocab_size=len(VOCABULARY), n_embd=32, n_layer=4, n_head=4, n_positions=64, **_ENDS),
    "bart": lambda: hf.BartConfig(
        vocab_size=len(VOCABULARY),
        d_model=32,
        encoder_layers=3,
        decoder_layers=4,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_position_embeddings=64,
        pad_token_id=0,
        **_ENDS,
    ),
    "convbert": lambda: hf.ConvBertConfig(**_SIZE, embedding_size=32, head_ratio=2, conv_kernel_size=3),
    "mobilebert": lambda: hf.MobileBertConfig(**_SIZE, embedding_size=16, intra_bottleneck_size=16),
    "fnet": lambda: hf.FNetConfig(
        vocab_size=len(VOCABULARY), hidden_size=32, num_hidden_layers=4, intermediate_size=48, pad_token_id=0
    ),
    "nystromformer": lambda: hf.NystromformerConfig(**_SIZE, num_landmarks=4, segment_means_seq_len=64),
    "bigbird": lambda: hf.BigBirdConfig(**_SIZE, block_size=4, num_random_blocks=1),
    "roformer": lambda: hf.RoFormerConfig(**_SIZE, embedding_size=32),
    "esm": lambda: hf.EsmConfig(**_SIZE, position_embedding_type="rotary", mask_token_id=4),
    "rembert": lambda: hf.RemBertConfig(**_SIZE, input_embedding_size=16),
    "squeezebert": lambda: hf.SqueezeBertConfig(**_SIZE, embedding_size=32),
    "canine": lambda: hf.CanineConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, num_hash_buckets=64
    ),
    "mistral": lambda: hf.MistralConfig(**_SIZE, num_key_value_heads=2),
    "qwen3": lambda: hf.Qwen3Config(**_SIZE, num_key_value_heads=2, head_dim=8, **_ENDS),
    "xlm": lambda: hf.XLMConfig(
        vocab_size=len(VOCABULARY), emb_dim=32, n_layers=4, n_heads=4, max_position_embeddings=64, pad_index=0
    ),
    "luke": lambda: hf.LukeConfig(**_SIZE, entity_vocab_size=10),
    "deberta": lambda: hf.DebertaConfig(**_SIZE),
    "yoso": lambda: hf.YosoConfig(**_SIZE),
    "ernie": lambda: hf.ErnieConfig(**_SIZE),
}


def made(config: Any, folder: Path) -> torch.nn.Module:
    """Save a model with random weights and a tokenizer; the model as it was saved."""
    torch.manual_seed(0)
    model = hf.AutoModel.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.2)
    saved(model, folder)
    return model


def saved(model: torch.nn.Module, folder: Path, **settings: Any) -> Path:
    """Write a model and the tokenizer, with some settings of its own."""
    with _quiet():
        model.save_pretrained(folder)
        tiny_tokenizer(40).save_pretrained(folder)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    return folder


def one_at_a_time(model: torch.nn.Module, encoder: LayerEncoder, texts: list[str]) -> np.ndarray:
    """Every layer of every text by transformers alone, without padding, averaged: (texts, layers + 1, width)"""
    stack = model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model
    rows = []
    for text in texts:
        ids = encoder.tokenizer(text, return_tensors="pt", truncation=True, max_length=encoder.max_length)["input_ids"]
        with torch.inference_mode():
            output = stack(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
        states = [*output.hidden_states[:-1], output.last_hidden_state]
        rows.append(torch.stack([layer.mean(1)[0] for layer in states]).numpy())
    return np.array(rows)


def architectures(_random: np.random.Generator, folder: Path) -> Tally:
    """Encoders of 33 architectures, their layers and the models saved from them."""
    tally = Tally()
    for name, config in {**ARCHITECTURES, **OTHERS}.items():
        model = made(config(), folder / name)
        with _attempt(tally, name), _quiet():
            encoder = LayerEncoder(folder / name, device="cpu")
            views = encoder.encode_layers(SENTENCES)
            tally.check(_near(views, one_at_a_time(model, encoder, SENTENCES)), f"{name}: its layers differ")
            for mix in ("last", "1,2"):
                ours = LayerModel(encoder, mix)
                texts = SENTENCES if encoder.reader.ignores_padding else SENTENCES[:1]
                theirs = ours.to_sentence_transformer().encode(texts)
                tally.check(_near(ours.encode(texts), theirs), f"{name}: saved with {mix}, it embeds otherwise")
    return tally


def padding(_random: np.random.Generator, folder: Path) -> Tally:
    """Tokenizers that pad on the left or have no padding token."""
    tally = Tally()
    for side, settings in {"left": {"padding_side": "left"}, "none": {"pad_token": None}}.items():
        for name in ("bert", "roberta", "modernbert", "mpnet"):
            place = folder / f"{side}-{name}"
            model = tiny_model(name)
            saved(model, place, **settings)
            with _quiet():
                encoder = LayerEncoder(place, device="cpu")
                same = _near(encoder.encode_layers(SENTENCES), one_at_a_time(model, encoder, SENTENCES))
                tally.check(same, f"{name}, {side}: its layers differ")
                for mix in (
                    "last @ cls",
                    "1,2 @ cls",
                    "1,2 @ max",
                    "concat(0,3) @ cls",
                    "last @ cls | 1 @ mean",
                    "wk(start=1)",
                ):
                    ours = LayerModel(encoder, mix)
                    alone = np.stack([ours.encode(text) for text in SENTENCES])
                    theirs = ours.to_sentence_transformer().encode(SENTENCES)
                    tally.check(_near(ours.encode(SENTENCES), alone), f"{name}, {side}, {mix}: batches differ")
                    tally.check(_near(ours.encode(SENTENCES), theirs), f"{name}, {side}, {mix}: saved, it differs")
    return tally


def host_folders(_random: np.random.Generator, folder: Path) -> Tally:
    """Folders of sentence-transformers with all its modules."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as host

    base = saved(tiny_model("bert"), folder / "base")
    start = partial(host.Transformer, str(base))
    pool = partial(host.Pooling, 32)
    relu = torch.nn.ReLU()
    prompts = {"prompts": {"query": "rain "}, "default_prompt_name": "query"}
    stacks: dict[str, tuple[Callable[[], list[Any]], dict[str, Any]]] = {
        "dense": (lambda: [start(), pool(), host.Dense(32, 12)], {}),
        "dense-relu-normalize": (
            lambda: [start(), pool("cls"), host.Dense(32, 12, bias=False, activation_function=relu), host.Normalize()],
            {},
        ),
        "two-dense": (lambda: [start(), pool("max"), host.Dense(32, 48), host.Dense(48, 8)], {}),
        "normalize-dense": (lambda: [start(), pool(), host.Normalize(), host.Dense(32, 12)], {}),
        "prompts": (lambda: [start(), pool()], prompts),
        "without-prompt": (lambda: [start(), host.Pooling(32, "mean", include_prompt=False)], prompts),
        "matryoshka": (lambda: [start(), pool(), host.Normalize()], {"truncate_dim": 7}),
        "short": (lambda: [start(max_seq_length=5), pool()], {}),
        "lower-case": (lambda: [start(do_lower_case=True), pool()], {}),
        "layer-norm": (lambda: [start(), pool(), host.LayerNorm(32)], {}),
        "dropout": (lambda: [start(), pool(), host.Dropout(0.1)], {}),
        "weighted-layers": (
            lambda: [
                start(config_kwargs={"output_hidden_states": True}),
                host.WeightedLayerPooling(32, num_hidden_layers=4, layer_start=1),
                pool(),
            ],
            {},
        ),
        "static": (lambda: [host.StaticEmbedding(tiny_tokenizer().backend_tokenizer, embedding_dim=16)], {}),
        "bag-of-words": (lambda: [host.BoW(list(WORDS))], {}),
        "router": (
            lambda: [
                host.Router.for_query_document(query_modules=[start(), pool()], document_modules=[start(), pool()])
            ],
            {},
        ),
        "fill-mask": (lambda: [start(transformer_task="fill-mask")], {}),
    }
    modes = ("weightedmean", "lasttoken", "mean_sqrt_len_tokens", ("cls", "mean"))
    stacks |= {f"pooling-{mode}": (partial(lambda one: [start(), pool(one)], mode), {}) for mode in modes}
    tally = Tally()
    for name, (modules, options) in stacks.items():
        with _quiet():
            torch.manual_seed(1)
            SentenceTransformer(modules=modules(), device="cpu", **options).save(str(folder / name))
            theirs = SentenceTransformer(str(folder / name), device="cpu")
        with _attempt(tally, name), _quiet():
            ours = LayerModel.load(folder / name, device="cpu")
            for encode in ({}, {"prompt": "door "}, {"truncate_dim": 4}, {"normalize_embeddings": True}):
                same = _near(ours.encode(SENTENCES, **encode), theirs.encode(SENTENCES, **encode))
                tally.check(same, f"{name}, {encode}: differs from sentence-transformers")
    return tally


def overflow(_random: np.random.Generator, folder: Path) -> Tally:
    """Weights that overflow half precision."""
    tally = Tally()
    for name in ("bert", "roberta", "modernbert", "deberta-v2"):
        for scale in (1.0, 30.0, 3000.0):
            model = tiny_model(name)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(scale if parameter.ndim == 1 else scale**0.5)
            place = saved(model, folder / f"{name}-{scale:g}")
            for dtype in ("float16", "bfloat16", "float32"):
                with _attempt(tally, f"{name} × {scale:g} in {dtype}"), _quiet():
                    model = LayerModel.load(place, device="cpu", dtype=dtype)
                    tally.check(bool(np.isfinite(model.encode(SENTENCES)).all()), f"{name} × {scale:g}, {dtype}: NaN")
    return tally


def texts(random: np.random.Generator, folder: Path) -> Tally:
    """Texts of no, one and 100,000 tokens, of special tokens only, all alike."""
    tally = Tally()
    words = [WORDS[place] for place in random.integers(len(WORDS), size=100_000)]
    odd = [
        "",
        " ",
        "\n\t",
        "a",
        "rain",
        "[SEP]",
        "[CLS] [SEP]",
        "[PAD] [PAD]",
        "[MASK]",
        "\u200b",
        "漢字",
        "\x00",
        "🙂",
    ]
    odd += [" ".join(words), "".join(words), "x" * 100_000, "." * 50_000, *["rain"] * 5]
    for name in ("bert", "roberta", "modernbert", "albert", "mpnet"):
        model = tiny_model(name)
        saved(model, folder / name)
        with _quiet():
            encoder = LayerEncoder(folder / name, device="cpu")
            views, expected = encoder.encode_layers(odd), one_at_a_time(model, encoder, odd)
        for text, ours, theirs in zip(odd, views, expected, strict=True):
            tally.check(_near(ours, theirs), f"{name}: {text[:20]!r} of {len(text)} characters differs")
    return tally


def searches(random: np.random.Generator, _folder: Path) -> Tally:
    """Few pairs, ties, constant and NaN layers."""
    tally = Tally()
    for trial in range(120):
        pairs, layers = int(random.integers(0, 30)), int(random.integers(1, 5))
        left, right = random.normal(size=(2, pairs, layers, 6))
        gold = random.integers(0, int(random.integers(1, 6)), size=pairs).astype(float)  # ties, and constants
        bad = int(random.integers(layers))
        kind = ("plain", "constant", "equal", "nan", "zero", "inf")[trial % 6]
        with np.errstate(all="ignore"):
            _spoil(kind, left, right, bad)
        metric = str(random.choice(["spearman", "pearson", "cosine_ap", "cosine_accuracy"]))
        gold = (gold > np.median(gold)).astype(float) if metric in ("cosine_ap", "cosine_accuracy") and pairs else gold
        with _attempt(tally, f"{pairs} pairs, {layers} layers, {kind}, {metric}"), _quiet():
            search = Search(metric=metric, n_resamples=50, dev="all" if trial % 2 else 0.5)
            selection = search.fit_views(left, right, gold).selection_
            best = selection.chosen
            alone = kind == "constant" and best.layers == (bad,) and layers > 1 and metric in ("spearman", "pearson")
            tally.check(not alone, f"{kind} layer {bad} of {layers} won by {metric}")
            tally.check(bool(np.isfinite(best.dev)), f"{kind}: {best.mix} won with {best.dev} by {metric}")
            if metric == "spearman" and trial % 2:
                tally.check(_as_scipy(left, right, gold, best), f"{kind}: {best.mix}: not SciPy's correlation")
            repr(selection.table), str(selection.verdict if not trial % 2 else ""), selection.warnings
    return tally


def classes(random: np.random.Generator, _folder: Path) -> Tally:
    """One class, classes of one row, constant views, NaN."""
    tally = Tally()
    for rows in (0, 1, 2, 3, 5, 8, 12, 40):
        for kinds in (1, 2, 4):
            for spoil in ("plain", "constant", "nan"):
                views = random.normal(size=(rows, 3, 4))
                _spoil(spoil, views, views, 1)
                labels = np.arange(rows) % kinds
                with _attempt(tally, f"{rows} rows of {kinds} classes, {spoil}"), _quiet():
                    search = Search(space="up to 2", splits=2, device="cpu").fit_classes(views, labels)
                    tally.check(bool(np.isfinite(search.selection_.gain.mean)), f"{rows} rows, {kinds} classes: NaN")
    return tally


def copies(_random: np.random.Generator, folder: Path) -> Tally:
    """Models pickled and copied after use."""
    tally = Tally()
    for name, config in {**ARCHITECTURES, "t5": OTHERS["t5"], "xlnet": OTHERS["xlnet"]}.items():
        made(config(), folder / name)
        with _quiet():
            model = LayerModel.load(folder / name, mix="1,2", device="cpu")
            expected = model.encode(SENTENCES)
            for how, copied in (("pickle", pickle.loads(pickle.dumps(model))), ("deepcopy", copy.deepcopy(model))):  # noqa: S301
                tally.check((copied.encode(SENTENCES) == expected).all(), f"{name}: {how} embeds otherwise")
            tally.check((model.encode(SENTENCES) == expected).all(), f"{name}: a copy has changed it")
    return tally


def _spoil(kind: str, left: np.ndarray, right: np.ndarray, layer: int) -> None:
    if not len(left):
        return
    if kind == "constant":
        left[:, layer] = right[:, layer] = 1.0
    elif kind == "equal":
        right[:] = left
    elif kind == "zero":
        left[:, layer] = 0.0
    elif kind in ("nan", "inf"):
        left[0, layer, 0] = float(kind)


def _as_scipy(left: np.ndarray, right: np.ndarray, gold: np.ndarray, best: Any) -> bool:
    u, v = left[:, list(best.layers)].mean(1), right[:, list(best.layers)].mean(1)
    cosines = (u * v).sum(1) / np.maximum(np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1), 1e-12)
    expected = spearmanr(rankdata(np.round(cosines, 10)), gold).statistic
    return bool(abs(best.dev - expected) < _SAME)


@contextlib.contextmanager
def _attempt(tally: Tally, what: str) -> Any:
    """Something that may be refused, in one line."""
    try:
        yield
    except LayerwiseError as error:
        tally.check(len(str(error).splitlines()) == 1, f"{what}: refused in several lines: {error}")
    except Exception as error:  # noqa: BLE001 - any other exception is what the attack looks for
        tally.check(False, f"{what}: {type(error).__name__}: {str(error)[:150]}")


@contextlib.contextmanager
def _quiet() -> Any:
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(level)


def _near(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return ours.shape == theirs.shape and bool(np.allclose(ours, theirs, rtol=1e-3, atol=_SAME))


ATTACKS = [
    Attack(
        "architectures",
        "encoders of 33 architectures, T5, XLNet, Longformer, FNet and GPT-2 among them",
        "every layer equals transformers' on the sentence alone, or the model is refused in one line",
        architectures,
        "T5, BART, CANINE and Nystromformer ended in tracebacks: T5's encoder is loaded, the others are refused; "
        "padding changed the numbers of ConvBERT, MobileBERT, FNet and YOSO: only equal lengths are batched; "
        "cut ESM and XLM could not be saved: they keep their blocks",
        "tests/encoder/test_numbers.py",
    ),
    Attack(
        "padding",
        "tokenizers that pad on the left or cannot pad",
        "batches, single sentences and saved models embed alike",
        padding,
        "saved models took a padding token for the first one; without a padding token they could not be used at all",
        "tests/encoder/test_numbers.py",
    ),
    Attack(
        "host-folders",
        "sentence-transformers folders with each of its modules, prompts and Matryoshka truncation",
        "as sentence-transformers embeds, or refused in one line",
        host_folders,
        "truncate_dim was ignored; static and other models without layers were called incomplete",
        "tests/model/test_drop_in.py",
    ),
    Attack(
        "overflow",
        "weights that overflow half precision",
        "finite embeddings, or one line that names another precision",
        overflow,
        "embeddings of NaN were returned",
        "tests/encoder/test_numbers.py",
    ),
    Attack(
        "odd-texts",
        "texts of no, one and 100,000 tokens, of special tokens only, all alike",
        "every layer equals transformers' on the text alone",
        texts,
        test="tests/encoder/test_numbers.py",
    ),
    Attack(
        "searches",
        "no to 30 pairs, ties, constant, zero, NaN and infinite layers",
        "the score is SciPy's, a constant layer never wins, the rest is refused in one line",
        searches,
        test="tests/search/test_sets.py",
    ),
    Attack(
        "classes",
        "classification searches of no to 40 rows, one class, constant and NaN views",
        "a number, or one line that says what is missing",
        classes,
        test="tests/search/test_classes.py",
    ),
    Attack(
        "copies",
        "models of eleven architectures pickled and copied after use",
        "equal embeddings, and the model is as it was",
        copies,
        "transformers' hooks could not be pickled, and pickled models gave no hidden states in a new process",
        "tests/model/test_drop_in.py",
    ),
]
