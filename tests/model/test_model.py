"""A LayerModel encodes like a SentenceTransformer, and what it saves loads without this package, cut or not."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from sentence_transformers import SentenceTransformer

from layerwise import Head, LayerEncoder, LayerModel, parse_mix
from layerwise.errors import InputError, LayerwiseError, MixError, ModelError
from layerwise.model import is_native
from support.tiny import ARCHITECTURES, DEPTH, WIDTH

# Runs in a process that can't import layerwise: folders in, one file of embeddings out.
PLAIN = """
import json, sys
sys.modules["layerwise"] = None
import numpy as np
from sentence_transformers import SentenceTransformer
folders, sentences, out = json.load(open(sys.argv[1])), json.load(open(sys.argv[2])), sys.argv[3]
try:
    import layerwise
    raise SystemExit("layerwise must not be importable here")
except ImportError:
    pass
np.savez(out, **{name: SentenceTransformer(folder, device="cpu").encode(sentences) for name, folder in folders.items()})
"""
NATIVE = ["last", "1,3", "2 @ cls", "last-2", "first-last", "0+last @ cls", "0:0.3,2:0.7", "1 @ max", "0"]
OURS = ["concat(1,3)", "1,3 @ max", "last @ cls | 1,3 @ mean"]


def head(width_in: int = WIDTH, width_out: int = 8) -> Head:
    generator = torch.Generator().manual_seed(3)
    return Head(torch.randn(width_out, width_in, generator=generator), torch.randn(width_out, generator=generator))


@pytest.fixture(scope="module")
def saved(tiny_folders, tmp_path_factory, pytestconfig) -> dict[str, tuple[LayerModel, Path]]:
    """Every architecture with some mixes, BERT with all, saved; `make test` takes the mixes of some in turn."""
    root = tmp_path_factory.mktemp("saved")
    made = {}
    in_turn = ARCHITECTURES.keys() - {"albert", "modernbert"} if "not slow" in pytestconfig.option.markexpr else ()
    for place, name in enumerate(ARCHITECTURES):
        encoder = LayerEncoder(tiny_folders[name], device="cpu")
        some = [("1,3", "2")[place % 2]] if name in in_turn else ["1,3", "2"]
        for number, text in enumerate(NATIVE if name == "bert" else some):
            model = LayerModel(encoder, text, chosen="for a test")
            made[f"{name} {text}"] = (model, root / f"{name}-{number}")
    encoder = LayerEncoder(tiny_folders["bert"], device="cpu")
    made["head"] = (LayerModel(encoder, "1,2", heads=[head()], normalize=True), root / "head")
    for model, folder in made.values():
        model.save(folder)
    return made


@pytest.fixture(scope="module")
def plain_embeddings(saved, sentences, tmp_path_factory, forks) -> dict[str, np.ndarray]:
    """What plain sentence-transformers makes of the saved folders."""
    work = tmp_path_factory.mktemp("plain")
    (work / "folders.json").write_text(json.dumps({name: str(folder) for name, (_, folder) in saved.items()}))
    (work / "sentences.json").write_text(json.dumps(sentences))
    done = forks.run(PLAIN, "folders.json", "sentences.json", "out.npz", cwd=work)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(np.load(work / "out.npz"))


def test_plain_sentence_transformers_gives_the_same_embeddings(saved, plain_embeddings, sentences):
    for name, (model, _) in saved.items():
        assert np.abs(plain_embeddings[name] - model.encode(sentences)).max() < 1e-5, name


def test_saved_models_load_with_the_same_mix_and_embeddings(saved, sentences):
    for name, (model, folder) in saved.items():
        loaded = LayerModel.load(folder, device="cpu")
        assert loaded.mix.resolve(DEPTH) == model.mix, name
        assert np.abs(loaded.encode(sentences) - model.encode(sentences)).max() < 1e-5, name


def test_unused_blocks_are_cut_and_the_config_says_so(saved):
    for name, (model, folder) in saved.items():
        top = max(1, max(model.mix.layers))
        # ModernBERT normalises behind its last block, so a layer below the top needs the block above it.
        needed = min(DEPTH, top + 1) if name.startswith("modernbert") else top
        config = json.loads((folder / "config.json").read_text())
        assert config.get("num_hidden_layers", config.get("n_layers")) == needed, name
        assert json.loads((folder / "layerwise.json").read_text())["blocks"] == {"kept": needed, "of": DEPTH}
        with safe_open(folder / "model.safetensors", "pt") as tensors:
            blocks = {part for key in tensors.keys() for part in key.split(".") if part.isdigit()}  # noqa: SIM118
        assert len(blocks) == (1 if name.startswith("albert") else needed), name


def test_only_native_modules_are_written(saved):
    for name, (_, folder) in saved.items():
        types = [module["type"] for module in json.loads((folder / "modules.json").read_text())]
        assert all(kind.startswith("sentence_transformers.") for kind in types), name


def test_no_pickle_is_written(saved):
    for _, folder in saved.values():
        assert not [path for path in folder.rglob("*") if path.suffix in (".bin", ".pt", ".pkl")]


@pytest.mark.parametrize("text", OURS)
def test_mixes_beyond_native_modules_need_trust_and_this_package(text, tiny_bert, sentences, tmp_path):
    model = LayerModel(tiny_bert, text)
    assert not is_native(model.mix)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(tmp_path / "model"))
    plain = SentenceTransformer(str(tmp_path / "model"), trust_remote_code=True, device="cpu")
    assert plain.get_embedding_dimension() == model.width
    assert np.abs(plain.encode(sentences) - model.encode(sentences)).max() < 1e-5
    loaded = LayerModel.load(tmp_path / "model")
    assert loaded.mix == model.mix
    assert np.abs(loaded.encode(sentences) - model.encode(sentences)).max() < 1e-5


def test_mixing_max_pooled_layers_differs_from_mixing_tokens(tiny_bert, sentences):
    """Why an average of max-pooled layers is not native: sentence-transformers would average tokens first."""
    encoder = LayerEncoder(tiny_bert)
    ours = LayerModel(encoder, "1,3 @ max").encode(sentences)
    views = encoder.encode_layers(sentences, "max")
    assert np.abs(ours - views[:, [1, 3]].mean(1)).max() < 1e-6
    tokens = encoder.tokenizer(sentences[0], return_tensors="pt")
    with torch.inference_mode():
        states = encoder.model(**tokens, output_hidden_states=True).hidden_states
    tokens_first = ((states[1] + states[3]) / 2).amax(1)[0].numpy()
    assert np.abs(tokens_first - ours[0]).max() > 1e-3


def test_saving_what_was_loaded_changes_nothing(saved, tmp_path):
    for number, name in enumerate(("bert 0:0.3,2:0.7", "modernbert 1,3", "head", "albert 2")):
        _, first = saved[name]
        second, third = tmp_path / f"second-{number}", tmp_path / f"third-{number}"
        LayerModel.load(first, device="cpu").save(second)
        LayerModel.load(second, device="cpu").save(third)
        assert _content(second) == _content(third), name
        assert _content(first) == _content(second), name


def _content(folder: Path) -> dict[str, bytes]:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return dict(sorted(files.items()))


@pytest.fixture(scope="module")
def prompted(tiny_bert) -> tuple[LayerModel, SentenceTransformer]:
    prompts = {"query": "who ", "document": "a clock ", "passage": "the river "}
    model = LayerModel(tiny_bert, "1,4", prompts=prompts, default_prompt_name="passage")
    return model, model.to_sentence_transformer()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalize_embeddings": True},
        {"truncate_dim": 5},
        {"truncate_dim": 5, "normalize_embeddings": True},
        {"prompt_name": "query"},
        {"prompt": "an old "},
        {"convert_to_tensor": True},
        {"convert_to_numpy": False},
        {"precision": "binary"},
        {"batch_size": 2},
    ],
    ids=str,
)
def test_encode_takes_the_options_of_sentence_transformers(prompted, sentences, options):
    model, plain = prompted
    for call in ("encode", "encode_query", "encode_document"):
        ours, theirs = getattr(model, call)(sentences, **options), getattr(plain, call)(sentences, **options)
        assert type(ours) is type(theirs)
        assert ours[0].dtype == theirs[0].dtype
        for one, other in zip(ours, theirs, strict=True):
            assert np.abs(np.asarray(one, dtype=float) - np.asarray(other, dtype=float)).max() < 1e-5, call


def test_prompts_change_embeddings_and_the_default_one_is_used(prompted, sentences):
    model, _ = prompted
    assert np.array_equal(model.encode(sentences), model.encode(sentences, prompt_name="passage"))
    assert np.abs(model.encode(sentences) - model.encode_query(sentences)).max() > 1e-3


def test_one_string_gives_one_vector_and_no_strings_give_none(prompted, sentences):
    model, plain = prompted
    one = model.encode(sentences[0])
    assert one.shape == plain.encode(sentences[0]).shape == (WIDTH,)
    assert np.abs(one - model.encode(sentences)[0]).max() < 1e-5
    assert model.encode([]).shape == (0, WIDTH)


def test_similarity_is_cosine_of_every_pair(prompted, sentences):
    model, plain = prompted
    left, right = model.encode(sentences[:2]), model.encode(sentences)
    assert torch.allclose(model.similarity(left, right), plain.similarity(left, right), atol=1e-6)


def test_any_sentence_transformers_folder_loads(tiny_bert, sentences, tmp_path):
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    modules = [Transformer(str(tiny_bert)), Pooling(WIDTH, "cls"), Dense(WIDTH, 6), Normalize()]
    plain = SentenceTransformer(modules=modules, prompts={"query": "who "}, device="cpu")
    plain.save_pretrained(str(tmp_path / "plain"))
    model = LayerModel.load(tmp_path / "plain")
    assert (model.mix, model.width, model.normalize) == (parse_mix("4 @ cls"), 6, True)
    assert np.abs(model.encode(sentences) - plain.encode(sentences)).max() < 1e-5
    assert np.abs(model.encode_query(sentences) - plain.encode_query(sentences)).max() < 1e-5


def test_the_embedded_default_equals_sentence_transformers(sentences):
    model = LayerModel.load()
    plain = SentenceTransformer(str(model.encoder.folder.root), device="cpu")
    texts = [*sentences, "word " * 400]
    assert np.abs(model.encode(texts) - plain.encode(texts)).max() < 1e-5


def test_another_mix_can_be_taken_when_loading(saved, sentences):
    _, folder = saved["head"]
    other = LayerModel.load(folder, mix="1 @ cls", device="cpu")
    assert (other.width, other.heads, other.normalize) == (WIDTH, (), False)


def test_the_card_states_encoder_mix_and_choice_but_no_path(saved):
    _, folder = saved["bert 1,3"]
    card = (folder / "README.md").read_text()
    for fact in ("| encoder | bert |", "`1,3 @ mean`", "for a test", "3 of 4", "library_name: sentence-transformers"):
        assert fact in card
    assert str(folder.parent) not in card + (folder / "layerwise.json").read_text()


def test_push_to_hub_uploads_what_save_writes(tiny_bert, monkeypatch):
    from huggingface_hub import CommitInfo, HfApi, RepoUrl

    seen = {}

    def upload(self, *, folder_path, repo_id, **_):
        seen[repo_id] = sorted(path.name for path in Path(folder_path).iterdir())
        where = f"https://huggingface.co/{repo_id}"
        return CommitInfo(commit_url=f"{where}/commit/1", commit_message="", commit_description="", oid="1")

    monkeypatch.setattr(HfApi, "create_repo", lambda self, repo_id, **_: RepoUrl(f"https://huggingface.co/{repo_id}"))
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    LayerModel(tiny_bert, "1,2").push_to_hub("somebody/model", private=True)
    assert {"modules.json", "model.safetensors", "README.md", "layerwise.json"} <= set(seen["somebody/model"])


def test_a_folder_with_content_is_kept_unless_overwritten(tiny_bert, tmp_path):
    model = LayerModel(tiny_bert, "1")
    target = tmp_path / "model"
    LayerModel(tiny_bert, "2").save(target)
    (target / "notes.txt").write_text("mine")
    with pytest.raises(ModelError, match=r"model: the folder is not empty"):
        model.save(target)
    assert (target / "notes.txt").read_text() == "mine"
    model.save(target, overwrite=True)
    assert not (target / "notes.txt").exists()
    assert LayerModel.load(target).mix == model.mix
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelError, match="is a file"):
        model.save(tmp_path / "file")


def test_a_full_disk_leaves_the_old_model_whole(tiny_bert, tmp_path, monkeypatch, sentences):
    model = LayerModel(tiny_bert, "1")
    model.save(tmp_path / "model")
    before = _content(tmp_path / "model")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SentenceTransformer, "save_pretrained", full)
    with pytest.raises(ModelError, match="No space left on device; nothing was changed"):
        LayerModel(tiny_bert, "2").save(tmp_path / "model", overwrite=True)
    assert _content(tmp_path / "model") == before
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["model"]


def test_what_does_not_fit_is_refused(tiny_bert):
    with pytest.raises(ModelError, match="takes 99 numbers, but what comes before it gives 32"):
        LayerModel(tiny_bert, "1", heads=[head(99)])
    with pytest.raises(LayerwiseError, match=r"no layer 9: this encoder has layers 0 to 4"):
        LayerModel(tiny_bert, "1,9")
    with pytest.raises(InputError, match=r"Unknown prompt 'passage'. Known: document, query"):
        LayerModel(tiny_bert, prompts={"query": "q"}, default_prompt_name="passage")
    with pytest.raises(InputError, match="truncate_dim 33 is not possible: embeddings have 32"):
        LayerModel(tiny_bert).encode(["a"], truncate_dim=33)
    with pytest.raises(InputError, match=r"Unknown activation 'tan'.*Known: tanh"):
        Head(torch.ones(2, 2), activation="tan")
    with pytest.raises(ModelError, match=r"weight \(out, in\) and a bias \(out,\)"):
        Head(torch.ones(2, 2), torch.ones(3))


def test_modules_that_are_not_known_are_named(saved, tmp_path):
    import shutil

    folder = shutil.copytree(saved["head"][1], tmp_path / "copy")
    modules = json.loads((folder / "modules.json").read_text())
    (folder / modules[1]["path"] / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="the folder is incomplete or pickled"):
        LayerModel.load(folder)
    modules[1]["type"] = "sentence_transformers.models.LSTM"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match=r"module sentence_transformers.models.LSTM is not known here; known: Dense"):
        LayerModel.load(folder)


def test_poolings_that_are_not_known_are_named(saved, tmp_path):
    import shutil

    folder = shutil.copytree(saved["bert last"][1], tmp_path / "copy")
    path = folder / "1_Pooling" / "config.json"
    path.write_text(json.dumps({"embedding_dimension": WIDTH, "pooling_mode": "mean_sqrt_len_tokens"}))
    with pytest.raises(ModelError, match="pooling mean_sqrt_len_tokens is not one of cls, lasttoken, max, mean"):
        LayerModel.load(folder)


@pytest.mark.parametrize("order", [["Pooling", "Normalize", "Dense"], ["Pooling", "Pooling"], ["Normalize"], []])
def test_modules_in_another_order_are_refused(order, tiny_bert, tmp_path):
    """Rather than computed in ours."""
    import shutil

    folder = shutil.copytree(tiny_bert, tmp_path / "copy")
    kinds = ["Transformer", *order]
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": ""} for kind in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match=r"its modules come as .*; supported are"):
        LayerModel.load(folder)


def test_old_models_that_ask_for_lower_case_get_it(tmp_path, sentences):
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from tokenizers import normalizers

    from support.tiny import tiny_model, tiny_tokenizer

    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tiny_model("bert").save_pretrained(tmp_path / "cased")
    tokenizer.save_pretrained(tmp_path / "cased")
    cased = LayerModel.load(tmp_path / "cased").encode(sentences)
    transformer = Transformer(str(tmp_path / "cased"), do_lower_case=True)
    lowered = SentenceTransformer(modules=[transformer, Pooling(WIDTH)], device="cpu").encode(sentences)
    (tmp_path / "cased" / "sentence_bert_config.json").write_text('{"max_seq_length": 60, "do_lower_case": true}')
    assert np.abs(LayerModel.load(tmp_path / "cased").encode(sentences) - lowered).max() < 1e-5
    assert np.abs(cased - lowered).max() > 1e-3, "or the test shows nothing"


@pytest.mark.parametrize("mix", ["last", "1,3"])
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_a_head_behind_half_precision_works_here_and_there(mix, tiny_bert, sentences, tmp_path):
    model = LayerModel(LayerEncoder(tiny_bert, dtype="bfloat16"), mix, heads=[head()])
    full = LayerModel(tiny_bert, mix, heads=[head()])
    model.save(tmp_path / "model")
    plain = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(sentences)
    for found in (
        model.encode(sentences),
        plain,
        LayerModel.load(tmp_path / "model", dtype="bfloat16").encode(sentences),
    ):
        assert found.shape == (len(sentences), 8)
        assert np.abs(found - full.encode(sentences)).max() < 0.15


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    path.write_bytes(data)


def test_weights_with_one_bit_changed_are_refused(tiny_bert, tmp_path):
    LayerModel(tiny_bert, "1,2 @ cls").save(tmp_path / "model")
    flip(tmp_path / "model" / "model.safetensors", 8 * 20_000)
    with pytest.raises(ModelError, match=r"model\.safetensors: is not what was saved: its checksum differs; copy"):
        LayerModel.load(tmp_path / "model")
    (tmp_path / "model" / "checksums.json").unlink()
    LayerModel.load(tmp_path / "model")


def test_a_changed_file_of_settings_is_told(tiny_bert, tmp_path, caplog):
    LayerModel(tiny_bert, "1,2 @ cls", prompts={"query": "q: "}).save(tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text("my own words")
    LayerModel.load(tmp_path / "model")
    assert "was changed" not in caplog.text
    path = tmp_path / "model" / "config_sentence_transformers.json"
    path.write_text(path.read_text().replace("q: ", "Q: "))
    assert LayerModel.load(tmp_path / "model").prompts["query"] == "Q: "
    assert "config_sentence_transformers.json: was changed after the model was saved" in caplog.text


def test_only_models_are_overwritten(tiny_bert, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    with pytest.raises(ModelError, match="photos: holds no model, so it is not overwritten"):
        LayerModel(tiny_bert, "1").save(tmp_path / "photos", overwrite=True)
    assert (tmp_path / "photos" / "cat.jpg").read_bytes() == b"cat"


def test_a_model_that_can_not_be_put_in_place_leaves_the_old_one(tiny_bert, tmp_path, monkeypatch):
    LayerModel(tiny_bert, "1").save(tmp_path / "model")
    before, rename = _content(tmp_path / "model"), Path.rename

    def broken(self, target):
        if self.name == "new":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", broken)
    with pytest.raises(ModelError, match="nothing was changed there"):
        LayerModel(tiny_bert, "2").save(tmp_path / "model", overwrite=True)
    assert _content(tmp_path / "model") == before


def test_similarity_has_a_known_name_and_a_pairwise_form(tiny_bert, sentences):
    with pytest.raises(InputError, match=r"Unknown similarity 'cosin'.*Known: cosine"):
        LayerModel(tiny_bert, similarity="cosin")
    model = LayerModel(tiny_bert, similarity="dot")
    left, right = model.encode(sentences), model.encode(sentences[::-1])
    assert np.abs(model.similarity_pairwise(left, right).numpy() - (left * right).sum(1)).max() < 1e-4


TRAINING = {
    "recipe": "simcse",
    "data": {"source": "wiki | news\nof 2020", "sentences": 1000},
    "seeds": (1, 2),
    "scores": [{"task": "STS-B", "dev": 80.5}, {"task": "SICK-R", "dev": None}],
    "resumed": False,
}


def test_facts_about_the_training_are_saved_shown_and_kept(tiny_bert, tmp_path):
    model = LayerModel(tiny_bert, "1,2", training=TRAINING)
    kept = json.loads(json.dumps(TRAINING))
    assert model.training == model.replaced(mix="1").training == kept
    model.save(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "layerwise.json").read_text())["training"] == kept
    assert LayerModel.load(tmp_path / "model").training == kept
    assert LayerModel.load(tmp_path / "model", mix="1").training == kept
    card = (tmp_path / "model" / "README.md").read_text()
    section = card.split("## Training")[1]
    for row in (
        "| recipe | simcse |",
        "| data.source | wiki / news of 2020 |",
        "| data.sentences | 1000 |",
        "| seeds | 1, 2 |",
        "| scores.0.task | STS-B |",
        "| scores.0.dev | 80.5 |",
        "| scores.1.dev | none |",
        "| resumed | no |",
    ):
        assert row in section


def test_a_model_without_training_says_nothing_of_one(tiny_bert, tmp_path):
    LayerModel(tiny_bert, "1").save(tmp_path / "model")
    assert "## Training" not in (tmp_path / "model" / "README.md").read_text()
    assert "training" not in json.loads((tmp_path / "model" / "layerwise.json").read_text())
    assert LayerModel.load(tmp_path / "model").training == {}


def test_the_digest_is_of_everything_that_decides_an_embedding(tiny_bert):
    encoder = LayerEncoder(tiny_bert, device="cpu")
    width = encoder.width
    variants = {
        "plain": LayerModel(encoder, "1"),
        "mix": LayerModel(encoder, "2"),
        "pooling": LayerModel(encoder, "1 @ cls"),
        "normalize": LayerModel(encoder, "1", normalize=True),
        "head": LayerModel(encoder, "1", heads=[Head(torch.eye(width))]),
        "activation": LayerModel(encoder, "1", heads=[Head(torch.eye(width), activation="relu")]),
        "two heads": LayerModel(encoder, "1", heads=[Head(torch.eye(width)), Head(torch.eye(width))]),
        "prompt": LayerModel(encoder, "1", prompts={"query": "who "}),
        "length": LayerModel(LayerEncoder(tiny_bert, device="cpu", max_length=8), "1"),
        "dtype": LayerModel(LayerEncoder(tiny_bert, device="cpu", dtype="bfloat16"), "1"),
    }
    digests = {name: model.digest() for name, model in variants.items()}
    assert len(set(digests.values())) == len(variants), digests
    assert LayerModel.load(tiny_bert, mix="1", device="cpu").digest() == digests["plain"]
    with torch.no_grad():
        next(encoder.model.parameters())[0] += 1
    assert variants["plain"].digest() != digests["plain"]


@pytest.mark.parametrize("mix", ["1", "0-2 @ cls", "1:0.25,2:0.75", "concat(2,1)", "last @ cls | 1 @ mean"])
def test_views_become_the_same_embeddings_as_texts(mix, tiny_bert, sentences, monkeypatch):
    monkeypatch.setattr("layerwise.model.layer_model._ROWS", 3)
    encoder = LayerEncoder(tiny_bert, device="cpu")
    width = LayerModel(encoder, mix).width
    model = LayerModel(encoder, mix, heads=[Head(torch.randn(5, width))], normalize=True)
    views = encoder.encode_layers(sentences, ["mean", "cls"])
    np.testing.assert_allclose(model.embed_views(views), model.encode(sentences), atol=1e-5)


def test_wk_needs_more_than_views(tiny_bert, sentences):
    model = LayerModel(tiny_bert, "wk(start=0)")
    with pytest.raises(MixError, match="reads token states, but these are pooled views"):
        model.embed_views({"mean": model.encoder.encode_layers(sentences)})


def test_the_card_has_the_rows_that_it_is_given():
    from dataclasses import replace

    from huggingface_hub import ModelCard

    from layerwise.model import ModelParts
    from layerwise.model.card import CardFacts, model_card

    facts = CardFacts("owner/name", depth=2, blocks=1, width=2, max_length=3)
    card = model_card(facts, ModelParts(chosen="by a|b", training={"recipe": "sim|cse"}))
    assert "| recipe | sim/cse |\n" in card.split("## Training")[1]
    assert "| how it was chosen | by a/b |\n| blocks kept | 1 of 2 |\n" in card
    data = ModelCard(card).data.to_dict()
    assert (data["library_name"], data["base_model"]) == ("sentence-transformers", "owner/name")
    assert "base_model" not in ModelCard(model_card(replace(facts, encoder="../name"), ModelParts())).data.to_dict()


@pytest.mark.parametrize(
    ("training", "message"),
    [
        (["simcse"], "training is .*; give a dict of facts"),
        ({"score": np.float32(1)}, "training holds what JSON cannot: .*float32.*; give texts, numbers"),
        ({"score": float("nan")}, "training holds what JSON cannot: Out of range float values"),
    ],
)
def test_training_facts_that_json_can_not_hold_are_refused(training, message, tiny_bert):
    with pytest.raises(InputError, match=message):
        LayerModel(tiny_bert, training=training)


@pytest.mark.parametrize("name", ["modules.json", "layerwise.json", "config_sentence_transformers.json"])
def test_a_missing_file_of_settings_is_refused(name, tiny_bert, tmp_path):
    LayerModel(tiny_bert, "1,2 @ cls").save(tmp_path / "model")
    (tmp_path / "model" / name).unlink()
    with pytest.raises(ModelError, match=rf"{name}: is missing, but was saved with the model; copy the folder again"):
        LayerModel.load(tmp_path / "model")
