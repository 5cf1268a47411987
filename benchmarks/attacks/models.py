"""Model folders from strangers: nothing in them runs, leads out of the folder, or takes memory without bound."""

import json
import os
import pickle
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from attack import Attack, Tally
from contained import Outcome, contained
from safetensors.torch import load_file, save_file

sys.path.append(str(Path(__file__).parents[2] / "tests"))
from support.tiny import DEPTH, WIDTH, save_tiny

if TYPE_CHECKING:
    from layerwise.encoder import LayerEncoder

os.environ["HF_HUB_OFFLINE"] = "1"
_MEMORY = 512 << 20  # bytes: many times what a tiny model takes, far below what the attacks ask for
_TESTS = "tests/encoder/test_untrusted.py"
_CODE = "from pathlib import Path\nPath({canary!r}).write_text('ran')\nclass Evil:\n    load = print\n"


class _Bomb:
    """Runs code when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple:
        return os.system, (f"touch {self.canary}",)


@cache
def _warm() -> None:
    """Import what loading needs, once, before processes are forked; nothing is encoded, which would start threads."""
    for module in ("model.layer_model", "evaluate.load", "evaluate.subjects", "predict.predictor"):
        import_module(f"layerwise.{module}")
    import_module("transformers.models.bert.modeling_bert")
    import_module("sentence_transformers")
    torch.set_num_threads(1)


def _use(folder: Path) -> tuple[tuple[int, ...], bool]:
    """Load and encode: the embeddings' shape, and whether all numbers are finite."""
    from layerwise.model import LayerModel

    model = LayerModel.load(folder, device="cpu")
    embeddings = model.encode(["The river rose.", "Rain."])
    return embeddings.shape, bool(np.isfinite(embeddings).all())


def _evaluate(folder: Path) -> tuple[tuple[int, ...], bool]:
    """As `_use`, by the command that falls back to sentence-transformers."""
    from layerwise.evaluate import load_subject

    subject = load_subject(str(folder), device="cpu")
    (embeddings,) = subject.embed(["The river rose.", "Rain."], "", subject.variants)
    return embeddings.shape, bool(np.isfinite(embeddings).all())


@cache
def _encoder() -> "LayerEncoder":
    """A tiny encoder, loaded once: the parts of a folder are then read without loading it again."""
    from layerwise.encoder import LayerEncoder

    with tempfile.TemporaryDirectory() as folder:
        encoder = LayerEncoder(save_tiny("bert", Path(folder) / "model"), device="cpu")
        assert encoder.depth == DEPTH
    return encoder


def _use_parts(folder: Path) -> int:
    """The parts of a folder on an encoder that is there already."""
    from layerwise.encoder import find_model
    from layerwise.model import LayerModel
    from layerwise.model.load import load_parts

    return LayerModel(_encoder(), **load_parts(find_model(folder)).as_dict()).width


def _use_tasks(folder: Path) -> int:
    from layerwise.predict.saved_tasks import read_tasks

    return len(read_tasks(folder, WIDTH)[0])


class _Folders:
    """Copies of a model in a folder of their own, beside a canary that hostile code would write."""

    def __init__(self, folder: Path, tally: Tally, *, pooled: bool = False) -> None:
        _warm()
        self.root, self.tally, self.canary = folder, tally, folder / "canary"
        self.base = save_tiny("bert", folder / "base")
        if pooled:
            _add_modules(self.base)

    def new(self, name: str) -> Path:
        """A fresh copy."""
        target = self.root / "models" / name
        shutil.copytree(self.base, target, symlinks=True)
        return target

    def judge(
        self, name: str, folder: Path, *, refused: bool | None = True, use: Callable[[Path], object] = _use
    ) -> Outcome:
        """Use a folder; it must end as expected (None: either way), and nothing may have run or been read outside."""
        outcome = contained(partial(use, folder), inside=(folder,), memory=2**31)
        told = " ".join(outcome.message.split())[-200:]
        expected = {True: ("refused",), False: ("value",), None: ("value", "refused")}[refused]
        held = outcome.ended in expected and outcome.one_line
        self.tally.check(held, f"{name}: {outcome.ended}: {told}")
        if outcome.ended == "value" and isinstance(outcome.value, tuple):
            self.tally.check(outcome.value[1], f"{name}: embeddings that are not finite")
        ran = self.canary.exists() or bool(outcome.started)
        self.tally.check(not ran, f"{name}: code ran {outcome.started[:1]}")
        self.tally.check(not outcome.outside, f"{name}: read outside: {outcome.outside[:2]}")
        self.tally.check(outcome.grown < _MEMORY, f"{name}: took {outcome.grown >> 20} MB")
        self.canary.unlink(missing_ok=True)
        return outcome


def _edit_json(path: Path, **changes: object) -> None:
    facts = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(facts | changes), encoding="utf-8")


def _add_modules(folder: Path, *more: dict) -> None:
    """Make the folder one of sentence-transformers."""
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        *more,
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def _dense(folder: Path, **config: object) -> Path:
    """Add a dense module."""
    place = folder / "2_Dense"
    place.mkdir(exist_ok=True)
    facts = {"in_features": WIDTH, "out_features": 4, "bias": True, "activation_function": "torch.nn.Tanh"}
    (place / "config.json").write_text(json.dumps(facts | config))
    save_file({"linear.weight": torch.ones(4, WIDTH), "linear.bias": torch.zeros(4)}, place / "model.safetensors")
    _add_modules(folder, {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    return place


def pickles(_random: np.random.Generator, folder: Path) -> Tally:
    """Pickles instead of weights, beside them, and under the name of safetensors."""
    tally = Tally()
    models = _Folders(folder, tally, pooled=True)
    bomb = pickle.dumps(_Bomb(models.canary))
    places = {
        "pytorch_model.bin": False,
        "training_args.bin": False,
        "optimizer.pt": False,
        "added_tokens.pkl": False,
        "1_Pooling/pytorch_model.bin": False,
        "model.safetensors": True,
        "tokenizer.json": True,
        "vocab.txt": False,
        "spiece.model": None,
        "layerwise.json": True,
    }
    for name, refused in places.items():
        hostile = models.new(f"at-{name.replace('/', '-')}")
        (hostile / name).write_bytes(bomb)
        models.judge(f"pickle as {name}", hostile, refused=refused)
    alone = models.new("alone")
    (alone / "model.safetensors").rename(alone / "pytorch_model.bin")
    (alone / "pytorch_model.bin").write_bytes(bomb)
    models.judge("pickle alone", alone)
    for use in (_use, _evaluate):
        dense = models.new(f"dense-{use.__name__}")
        place = _dense(dense)
        (place / "model.safetensors").unlink()
        (place / "pytorch_model.bin").write_bytes(bomb)
        models.judge(f"pickled head by {use.__name__}", dense, use=use)
    return tally


def remote_code(_random: np.random.Generator, folder: Path) -> Tally:
    """Code in the folder that its configs name, and names of Python's own callables."""
    tally = Tally()
    models = _Folders(folder, tally, pooled=True)
    code = _CODE.format(canary=str(models.canary))
    mapped = {"AutoModel": "evil.Evil", "AutoConfig": "evil.Evil", "AutoTokenizer": ["evil.Evil", "evil.Evil"]}
    for model_type in ("bert", "evil"):
        for name in ("config.json", "tokenizer_config.json"):
            hostile = models.new(f"map-{model_type}-{name}")
            (hostile / "evil.py").write_text(code)
            changes = {"model_type": model_type} if name == "config.json" else {"tokenizer_class": "Evil"}
            _edit_json(hostile / name, auto_map=mapped, **changes)
            models.judge(f"auto_map in {name}, {model_type}", hostile, refused=None)
    for value in ("stranger/kernel", "stranger/kernel:run", "../../evil", "paged|stranger/kernel"):
        for key in ("attn_implementation", "_attn_implementation"):
            hostile = models.new(f"attention-{len(list(folder.glob('models/*')))}")
            _edit_json(hostile / "config.json", **{key: value})
            models.judge(f"{key} {value}", hostile)
    types = ("evil.Evil", "os.system", "subprocess.Popen", "builtins.eval", "layerwise.cli.app.main", "torch.load")
    inner = ("sentence_transformers.base.model.torch", "sentence_transformers.util.misc.importlib.import_module")
    imports = ("sentence_transformers.models.WordEmbeddings", "sentence_transformers.models.Router")
    for kind in (*types, *inner, *imports, "", "..", 7, None, ["a"], "sentence_transformers.models.Nothing"):
        for use in (_use, _evaluate):
            hostile = models.new(f"type-{len(list(folder.glob('models/*')))}")
            (hostile / "evil.py").write_text(code)
            facts = {"tokenizer_class": "evil.Evil", "activation_function": "evil.Evil"}
            (hostile / "2_Evil").mkdir()
            (hostile / "2_Evil" / "config.json").write_text(json.dumps(facts))
            _add_modules(hostile, {"idx": 2, "name": "2", "path": "2_Evil", "type": kind})
            models.judge(f"module type {kind!r} by {use.__name__}", hostile, use=use)
    for activation in ("os.system", "evil.Evil", "builtins.exit", "torch.nn.Tanh.__init__", "torch.load"):
        for use in (_use, _evaluate):
            hostile = models.new(f"activation-{len(list(folder.glob('models/*')))}")
            (hostile / "evil.py").write_text(code)
            _dense(hostile, activation_function=activation)
            models.judge(f"activation {activation} by {use.__name__}", hostile, use=use, refused=None)
    return tally


def paths(_random: np.random.Generator, folder: Path) -> Tally:
    """Paths and links that lead out of the folder, and files that are no files."""
    tally = Tally()
    models = _Folders(folder, tally, pooled=True)
    secret = folder / "secret"
    shutil.copytree(models.base, secret)
    for path in ("../../secret/1_Pooling", str(secret / "1_Pooling"), "1_Pooling/../../../secret/1_Pooling", ".."):
        for number in (0, 1):
            for use in (_use, _evaluate):
                hostile = models.new(f"path-{len(list(folder.glob('models/*')))}")
                modules = json.loads((hostile / "modules.json").read_text())
                modules[number]["path"] = path
                (hostile / "modules.json").write_text(json.dumps(modules))
                models.judge(f"module {number} at {path} by {use.__name__}", hostile, use=use)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "1_Pooling", "1_Pooling/config.json"):
        hostile = models.new(f"link-{name.replace('/', '-')}")
        place = hostile / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        place.symlink_to(secret / name)
        models.judge(f"{name} is a link outside", hostile)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "modules.json", "1_Pooling/config.json"):
        for kind in ("pipe", "device", "loop", "folder"):
            hostile = models.new(f"{kind}-{name.replace('/', '-')}")
            place = hostile / name
            place.unlink()
            if kind == "pipe":
                os.mkfifo(place)
            elif kind == "folder":
                place.mkdir()
            else:
                place.symlink_to("/dev/zero" if kind == "device" else place)
            models.judge(f"{name} is a {kind}", hostile, refused=None if name == "modules.json" else True)
    inner = models.new("inner")
    (inner / "weights").mkdir()
    (inner / "model.safetensors").rename(inner / "weights" / "w.safetensors")
    (inner / "model.safetensors").symlink_to("weights/w.safetensors")
    models.judge("a link inside the folder", inner, refused=False)
    record = models.new("record")
    facts = {"what": "flow", "source": "x", "sentences": 1, "different": 0, "digest": "", "hashes": "../../secret/h"}
    (record / "layerwise.json").write_text(json.dumps({"fitted_on": [facts]}))
    models.judge("a fitted_on record outside", record)
    return tally


def configs(random: np.random.Generator, folder: Path) -> Tally:
    """Absurd shapes and depths in config.json."""
    tally = Tally()
    models = _Folders(folder, tally)
    sizes = ("hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings", "type_vocab_size")
    values = (10**6, 10**9, 10**18, 2**63, -1, 0, "32", None, 1e308, [1], {"a": 1}, True)
    cases: list[dict] = [{key: value} for key in (*sizes, "num_hidden_layers") for value in values]
    cases += [{"num_attention_heads": value} for value in (0, -1, 10**9, "4", 3)]
    cases += [{"hidden_act": "os.system"}, {"pad_token_id": 10**9}, {"quantization_config": 7}, {"dtype": "evil"}]
    cases += [{"model_type": value} for value in ("nothing", 7, None, ["bert"], "gpt2", "../bert")]
    cases += [{"layer_norm_eps": value} for value in (float("nan"), -1.0, "x", 1e308)]
    cases += [{"is_decoder": True, "add_cross_attention": True}, {"id2label": {"a": 1}}, {"use_return_dict": False}]
    for number, case in enumerate(cases):
        hostile = models.new(f"case-{number}")
        _edit_json(hostile / "config.json", **case)
        models.judge(f"config.json with {case}", hostile, refused=None)
    for number in range(20):
        key, value = random.choice([*sizes, "num_hidden_layers"]), int(10 ** random.uniform(5, 17))
        hostile = models.new(f"large-{number}")
        _edit_json(hostile / "config.json", **{str(key): value})
        models.judge(f"config.json with {key} = {value}", hostile)
    deep = "[" * 100_000
    texts = [deep, '{"a":' * 100_000, "", "null", "[]", '{"model_type": "bert"', "\x00" * 1000, '{"hidden_size": NaN}']
    for name in ("config.json", "tokenizer_config.json", "tokenizer.json", "modules.json", "layerwise.json"):
        for number, text in enumerate(texts):
            hostile = models.new(f"{name}-{number}")
            (hostile / name).write_text(text)
            models.judge(f"{name} holding {text[:20]!r}", hostile, refused=None)
    return tally


def _with_header(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def weights(random: np.random.Generator, folder: Path) -> Tally:
    """Weights that are truncated, of other shapes, not finite, or whose header lies."""
    tally = Tally()
    models = _Folders(folder, tally)
    whole = (models.base / "model.safetensors").read_bytes()
    tensor = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    headers = [
        {"a": tensor | {"shape": [2**40]}},
        {"a": tensor | {"data_offsets": [0, 2**60]}},
        {"a": tensor | {"data_offsets": [-8, 8]}},
        {"a": tensor | {"dtype": "EVIL"}},
        {"a": tensor, "b": tensor},
        {"a": 7},
        [],
    ]
    files = [b"", whole[:4], whole[: len(whole) // 2], whole[:-1], whole + b"x", b"\xff" * 1000]
    files += [_with_header(b"{}", length=length) for length in (2**60, 2**63, 2**64 - 1, 10**8)]
    files += [_with_header(json.dumps(header).encode(), b"\0" * 8) for header in headers]
    files += [_with_header(b"[" * 100_000)]
    files += [whole[: random.integers(9, len(whole))] for _ in range(10)]
    for number, content in enumerate(files):
        hostile = models.new(f"file-{number}")
        (hostile / "model.safetensors").write_bytes(content)
        models.judge(f"weights {number} of {len(content)} bytes", hostile)
    tensors = load_file(models.base / "model.safetensors")
    name = "encoder.layer.1.output.dense.weight"
    for value in (float("nan"), float("inf"), -float("inf")):
        changed = tensors | {name: torch.full_like(tensors[name], value)}
        _judge_tensors(models, f"weights with {value}", changed)
    for shape in ((1, 1), (48, 32), (32, 48, 1), (0, 48), (64, 96)):
        _judge_tensors(models, f"weights of shape {shape}", tensors | {name: torch.ones(shape)})
    _judge_tensors(models, "weights that lack a tensor", {key: value for key, value in tensors.items() if key != name})
    _judge_tensors(models, "weights of whole numbers", tensors | {name: torch.ones(32, 48, dtype=torch.int64)}, None)
    return tally


def _judge_tensors(models: _Folders, name: str, tensors: dict, refused: bool | None = True) -> None:
    hostile = models.new(name.replace(" ", "-"))
    save_file(tensors, hostile / "model.safetensors", metadata={"format": "pt"})
    models.judge(name, hostile, refused=refused)


def _tokenizers(base: dict) -> Iterator[tuple[str, dict, bool | None]]:
    """Changes of tokenizer.json."""
    doubling = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
    nested: dict = {"type": "Lowercase"}
    for _ in range(5000):
        nested = {"type": "Sequence", "normalizers": [nested]}
    slow = {"type": "Replace", "pattern": {"Regex": "(r+r+)+$"}, "content": "a"}
    long = {"type": "Replace", "pattern": {"String": "r"}, "content": "a" * 10**6}
    empty = {"type": "Replace", "pattern": {"Regex": "r*"}, "content": "a" * 10**4}
    grow = {"type": "Sequence", "normalizers": [{**doubling, "pattern": {"String": "r"}, "content": "r" * 10}] * 12}
    yield "a text that grows 10^12 times", {"normalizer": grow}, True
    yield "a letter that becomes a million", {"normalizer": long}, True
    yield "an empty match that becomes 10,000", {"normalizer": empty}, True
    yield "normalizers nested 5,000 deep", {"normalizer": nested}, True
    yield "a slow regex", {"normalizer": slow}, None
    yield "a regex of 1 MB", {"normalizer": {**slow, "pattern": {"Regex": "(a|b)" * 200_000}}}, None
    yield "a broken regex", {"normalizer": {**slow, "pattern": {"Regex": "((("}}}, True
    tokens = [{"id": len(base["model"]["vocab"]) + n, "content": f"<x{n}>", "special": False} for n in range(100_000)]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    yield "100,000 added tokens", {"added_tokens": [token | flags for token in tokens]}, True
    yield "an added token of id 2^31", {"added_tokens": [tokens[0] | flags | {"id": 2**31}]}, True
    template = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}] * 10_000
    single = [*template, {"Sequence": {"id": "A", "type_id": 0}}]
    yield "10,000 special tokens a text", {"post_processor": base["post_processor"] | {"single": single}}, True
    yield "no vocabulary", {"model": base["model"] | {"vocab": {}}}, True
    yield "ids beyond the model", {"model": base["model"] | {"vocab": {**base["model"]["vocab"], "rain": 10**9}}}, True
    yield "an unknown model", {"model": {"type": "Evil"}}, True
    yield "truncation to 2^60", {"truncation": {"max_length": 2**60, "strategy": "LongestFirst", "stride": 0}}, None
    padding = {"strategy": {"Fixed": 10**10}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    yield "padding to 10^10 tokens", {"padding": padding | {"pad_to_multiple_of": None}}, None
    yield "padding to a multiple of 10^9", {"padding": padding | {"pad_to_multiple_of": 10**9}}, None


def tokenizers(_random: np.random.Generator, folder: Path) -> Tally:
    """Tokenizers that grow texts, nest, match slowly, or give ids that the model has not."""
    tally = Tally()
    models = _Folders(folder, tally)
    base = json.loads((models.base / "tokenizer.json").read_text())
    for number, (name, changes, refused) in enumerate(_tokenizers(base)):
        hostile = models.new(f"tokenizer-{number}")
        try:
            (hostile / "tokenizer.json").write_text(json.dumps(base | changes))
        except RecursionError:
            deep = '{"type":"Sequence","normalizers":[' * 5000 + '{"type":"Lowercase"}' + "]}" * 5000
            text = json.dumps(base | {"normalizer": "HERE"}).replace('"HERE"', deep)
            (hostile / "tokenizer.json").write_text(text)
        models.judge(name, hostile, refused=refused)
    settings: list[dict] = [{"model_max_length": value} for value in (-1, 0, 1, 10**30, "x", None, 1.5, [])]
    settings += [{"pad_token": value} for value in ("<none>", 7, {"a": 1}, None)]
    settings += [{"tokenizer_class": value} for value in ("os.system", "Evil", 7, "BertTokenizer")]
    for number, case in enumerate(settings):
        hostile = models.new(f"settings-{number}")
        _edit_json(hostile / "tokenizer_config.json", **case)
        models.judge(f"tokenizer_config.json with {case}", hostile, refused=None)
    return tally


def templates_and_cards(_random: np.random.Generator, folder: Path) -> Tally:
    """Chat templates, huge cards, huge JSON: not rendered, not read."""
    tally = Tally()
    models = _Folders(folder, tally)
    escape = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    loop = "{% for a in range(10**9) %}{% for b in range(10**9) %}x{% endfor %}{% endfor %}"
    write = "{{ lipsum.__globals__['os'].system('touch CANARY') }}".replace("CANARY", str(models.canary))
    for number, template in enumerate((escape, loop, write)):
        hostile = models.new(f"template-{number}")
        (hostile / "chat_template.jinja").write_text(template)
        _edit_json(hostile / "tokenizer_config.json", chat_template=template)
        models.judge(f"chat template {template[:20]}", hostile, refused=False)
    for name, size, refused in (("README.md", 10**9, False), ("layerwise.json", 10**9, True)):
        hostile = models.new(f"huge-{name}")
        with (hostile / name).open("wb") as file:
            file.truncate(size)
        models.judge(f"{name} of {size:,} bytes", hostile, refused=refused)
    for name in ("config.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"):
        hostile = models.new(f"huge-{name}")
        with (hostile / name).open("wb") as file:
            file.truncate(10**9)
        models.judge(f"{name} of 10^9 bytes", hostile)
    return tally


def saved_parts(_random: np.random.Generator, folder: Path) -> Tally:
    """Our own parts of a folder with absurd values: layerwise.json, heads, mixes, flows, attention, tasks."""
    tally = Tally()
    models = _Folders(folder, tally, pooled=True)
    _encoder()
    odd = (7, "x", None, [], {}, [1], {"a": 1}, 1e308, "a" * 10**6, {"a": {"a": 1}}, "\x1b[2J", True, [[[]]])
    for key in ("chosen", "mix", "fitted_on", "training", "blocks"):
        for number, value in enumerate(odd):
            hostile = models.new(f"{key}-{number}")
            (hostile / "layerwise.json").write_text(json.dumps({key: value}))
            models.judge(f"layerwise.json with {key} = {str(value)[:20]!r}", hostile, refused=None, use=_use_parts)
    for key in ("prompts", "default_prompt_name", "similarity_fn_name"):
        for number, value in enumerate(odd):
            hostile = models.new(f"{key}-{number}")
            (hostile / "config_sentence_transformers.json").write_text(json.dumps({key: value}))
            models.judge(f"{key} = {str(value)[:20]!r}", hostile, refused=None, use=_use_parts)
    _attack_heads(models)
    _attack_modules(models, odd)
    _attack_tasks(models, odd)
    return tally


def _attack_heads(models: _Folders) -> None:
    shapes = ((4, WIDTH + 1), (4,), (0, WIDTH), (4, WIDTH, 1), (1, 1))
    for number, shape in enumerate(shapes):
        hostile = models.new(f"head-{number}")
        place = _dense(hostile)
        save_file({"linear.weight": torch.ones(shape)}, place / "model.safetensors")
        models.judge(f"a head of shape {shape}", hostile, use=_use_parts)
    for number, tensors in enumerate(({}, {"x": torch.ones(4)}, {"linear.bias": torch.ones(4)})):
        hostile = models.new(f"headless-{number}")
        save_file(tensors, _dense(hostile) / "model.safetensors")
        models.judge(f"a head with the tensors {list(tensors)}", hostile, use=_use_parts)
    for value in (float("nan"), float("inf")):
        hostile = models.new(f"head-{value}")
        save_file({"linear.weight": torch.full((4, WIDTH), value)}, _dense(hostile) / "model.safetensors")
        models.judge(f"a head of {value}", hostile, use=_use_parts)


def _attack_modules(models: _Folders, odd: tuple) -> None:
    flow = {"width": WIDTH, "blocks": 1, "hidden": 8, "coupling": "affine"}
    sizes = (10**6, 10**9, -1, 0, *odd)
    attention = {"mix": "attention(cls, mean)", "word_embedding_dimension": WIDTH, "depth": DEPTH}
    kinds: list[tuple[str, dict]] = []
    kinds += [("FlowTransform", flow | {key: value}) for key in flow for value in sizes]
    kinds += [("MixPooling", attention | {key: value}) for key in attention for value in sizes]
    kinds += [("MixPooling", {"mix": value, "word_embedding_dimension": WIDTH}) for value in (*odd, "0-999999999")]
    kinds += [("MixPooling", {"mix": "concat(" + "0," * 100_000 + "1)"})]
    kinds += [("WeightedLayerPooling", {"layer_start": value, "num_hidden_layers": 4}) for value in sizes]
    kinds += [("Pooling", {"pooling_mode": value}) for value in odd]
    for number, (kind, config) in enumerate(kinds):
        hostile = models.new(f"module-{number}")
        place = hostile / "m"
        place.mkdir()
        (place / "config.json").write_text(json.dumps(config))
        save_file({"layer_weights": torch.ones(2), "x": torch.ones(2)}, place / "model.safetensors")
        modules = json.loads((hostile / "modules.json").read_text())
        entry = {"idx": 1, "name": "1", "path": "m", "type": f"layerwise.model.modules.{kind}"}
        before = [modules[0], entry, modules[1]] if kind == "WeightedLayerPooling" else [*modules, entry]
        replaced = before if kind in ("WeightedLayerPooling", "FlowTransform") else [modules[0], entry]
        (hostile / "modules.json").write_text(json.dumps(replaced))
        models.judge(f"{kind} with {str(config)[:80]}", hostile, refused=None, use=_use_parts)


def _attack_tasks(models: _Folders, odd: tuple) -> None:
    task = {"name": "a", "kind": "classification", "file": "x.csv", "columns": {"left": "text", "label": "label"}}
    objective = {"task": "a"}
    entry = {"task": task, "objective": objective, "labels": ["x", "y"]}
    cases: list[object] = [{"format": 2, "tasks": value} for value in odd]
    cases += [{"format": value, "tasks": [entry]} for value in odd]
    cases += [{"format": 2, "tasks": [entry | {key: value}]} for key in entry for value in odd]
    names = ("../../secret", "/etc/passwd", "", "a/b", "\x00", "a\nb", "x" * 10**5)
    cases += [{"format": 2, "tasks": [entry | {"task": task | {"name": name}}]} for name in names]
    cases += [{"format": 2, "tasks": [entry | {"labels": [str(n) for n in range(10**6)]}]}, [], "x"]
    for number, case in enumerate(cases):
        hostile = models.new(f"tasks-{number}")
        (hostile / "tasks").mkdir()
        (hostile / "tasks.json").write_text(json.dumps(case))
        save_file({"x": torch.ones(1)}, hostile / "tasks" / "a.safetensors")
        models.judge(f"tasks.json with {str(case)[:80]}", hostile, use=_use_tasks, refused=None)


ATTACKS = [
    Attack(
        "pickles",
        "pickles that run code as weights, beside weights, as tokenizer, as a head, under the name of safetensors",
        "no pickle is loaded; the folder is refused or the pickle ignored",
        pickles,
        mended="`evaluate` showed a traceback of torch where a head was pickled",
        test=_TESTS,
    ),
    Attack(
        "remote-code",
        "code in the folder that auto_map, module types, activations or attention kernels name",
        "nothing of it is imported or fetched without --trust-remote-code",
        remote_code,
        mended="attn_implementation could name code of the hub; `evaluate` handed any module type on to "
        "sentence-transformers",
        test=_TESTS,
    ),
    Attack(
        "paths",
        "module paths and links out of the folder, pipes, devices and loops in place of files",
        "only files inside the folder are read",
        paths,
        mended="module paths and links led out of the folder",
        test=_TESTS,
    ),
    Attack(
        "configs",
        "absurd sizes and depths, wrong types, deep and broken JSON in config.json and its neighbours",
        "a model or one line; memory follows the weights, not the config",
        configs,
        mended="a million layers were built for minutes, mismatched sizes took their memory, some values gave "
        "tracebacks or NaN",
        test=_TESTS,
    ),
    Attack(
        "weights",
        "safetensors that are cut, of other shapes, not finite, or whose header lies",
        "one line that names the file",
        weights,
        mended="NaN and infinite weights were loaded",
        test=_TESTS,
    ),
    Attack(
        "tokenizers",
        "tokenizers that grow texts, nest, match slowly, pad without end or give unknown ids",
        "a model or one line; a text's memory follows its length",
        tokenizers,
        mended="a normalizer could let a text grow without bound; unknown ids and too many special tokens gave "
        "tracebacks",
        test=_TESTS,
    ),
    Attack(
        "templates-and-cards",
        "hostile chat templates, cards and JSON of a gigabyte",
        "templates and cards are not read, JSON of that size is refused",
        templates_and_cards,
        mended="JSON of any size was parsed",
        test=_TESTS,
    ),
    Attack(
        "saved-parts",
        "layerwise.json, heads, mixes, flows, attention, prompts and tasks.json with absurd values",
        "a model or one line",
        saved_parts,
        mended="values of other kinds gave tracebacks, networks larger than their weights took their memory",
        test=_TESTS,
    ),
]
