"""What can be evaluated: encoders, saved models, sentence-transformers folders, anything that encodes."""

import json
import logging

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, Transformer
from tokenizers import Tokenizer

from layerwise.errors import InputError, MixError, ModelError
from layerwise.evaluate import (
    HostSubject,
    LayerSubject,
    Protocol,
    ResultStore,
    SearchedSubject,
    evaluate,
    layer_mixes,
    load_subject,
)
from layerwise.model import Head, LayerModel
from support.tiny import DEPTH, SENTENCES, WIDTH, tiny_tokenizer


def embedded(subject, texts=SENTENCES, role="") -> dict[str, np.ndarray]:
    variants = subject.variants
    return {v.label: vectors for v, vectors in zip(variants, subject.embed(texts, role, variants), strict=True)}


def test_an_encoder_is_read_as_the_mean_of_its_last_layer(tiny_bert, tiny_layers):
    subject = load_subject(str(tiny_bert), device="cpu")
    assert [variant.label for variant in subject.variants] == [f"{DEPTH} @ mean"]
    assert np.allclose(embedded(subject)[f"{DEPTH} @ mean"], tiny_layers.encode(SENTENCES), atol=1e-5)
    assert subject.name == str(tiny_bert)


@pytest.mark.slow
def test_every_layer_is_what_encoding_that_layer_alone_gives(tiny_bert):
    subject = load_subject(str(tiny_bert), every_layer=True, poolings=("mean", "cls", "max"), device="cpu")
    found = embedded(subject)
    assert list(found) == layer_mixes(DEPTH)
    assert len(found) == 3 * (DEPTH + 1)
    for mix, vectors in found.items():
        alone = LayerModel.load(tiny_bert, mix=mix, device="cpu").encode(SENTENCES)
        assert np.abs(vectors - alone).max() < 1e-5, mix


@pytest.mark.parametrize("mix", ["last-2", "0+last", "1:0.3,3:0.7 @ cls", "concat(1,-1) @ max", "wk(start=1)"])
def test_every_kind_of_mix_is_what_encoding_by_it_gives(tiny_bert, mix):
    subject = load_subject(str(tiny_bert), layers=[mix, "2"], device="cpu")
    found = embedded(subject)
    alone = LayerModel.load(tiny_bert, mix=mix, device="cpu")
    assert np.abs(found[str(alone.mix)] - alone.encode(SENTENCES)).max() < 1e-5


def test_equal_mixes_are_evaluated_once(tiny_layers):
    subject = LayerSubject(tiny_layers, ["last", "-1", f"{DEPTH} @ mean", "1"])
    assert [variant.label for variant in subject.variants] == [f"{DEPTH} @ mean", "1 @ mean"]
    assert [(variant.layers, variant.pooling) for variant in subject.variants] == [((DEPTH,), "mean"), ((1,), "mean")]


def headed(encoder) -> LayerModel:
    torch.manual_seed(0)
    heads = [Head(torch.randn(16, WIDTH), torch.randn(16), activation="tanh"), Head(torch.randn(8, 16))]
    return LayerModel(encoder, "1,2 @ mean", heads=heads, normalize=True)


def test_a_saved_model_with_heads_and_normalising(tmp_path, tiny_layers):
    model = headed(tiny_layers.encoder)
    model.save(tmp_path / "model")
    subject = load_subject(str(tmp_path / "model"), device="cpu")
    (label,) = embedded(subject)
    assert label == "1,2 @ mean"
    vectors = embedded(subject)[label]
    assert np.abs(vectors - model.encode(SENTENCES)).max() < 1e-5
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert subject.variants[0].facts["normalize"] is True
    assert subject.variants[0].facts["mix_digest"] == model.mix_digest()
    others = load_subject(str(tmp_path / "model"), layers=["1"], device="cpu")
    assert embedded(others)["1 @ mean"].shape == (len(SENTENCES), WIDTH)  # nothing stands behind another mix
    assert others.variants[0].facts["normalize"] is False
    assert others.variants[0].facts["mix_digest"] == LayerModel(tiny_layers.encoder, "1").mix_digest()


def test_a_sentence_transformers_folder(tmp_path, tiny_bert):
    host = SentenceTransformer(modules=[Transformer(str(tiny_bert)), Pooling(WIDTH, "cls")], device="cpu")
    host.save(str(tmp_path / "model"))
    subject = load_subject(str(tmp_path / "model"), device="cpu")
    assert isinstance(subject, LayerSubject)
    assert np.abs(embedded(subject)[f"{DEPTH} @ cls"] - host.encode(SENTENCES)).max() < 1e-5


@pytest.fixture
def unread(tmp_path, tiny_bert):
    """A folder whose pooling we don't have."""
    modules = [Transformer(str(tiny_bert)), Pooling(WIDTH, "mean_sqrt_len_tokens")]
    host = SentenceTransformer(modules=modules, device="cpu")
    host.save(str(tmp_path / "unread"))
    return tmp_path / "unread", host


def test_a_folder_with_modules_we_cant_read_is_evaluated_as_it_encodes(unread, caplog, pairs_task):
    folder, host = unread
    subject = load_subject(str(folder), device="cpu")
    assert isinstance(subject, HostSubject)
    assert "mean_sqrt_len_tokens is not one of" in caplog.text
    assert "it is evaluated as sentence-transformers encodes, without its layers" in caplog.text
    assert np.abs(embedded(subject)["as it encodes"] - host.encode(SENTENCES)).max() < 1e-6
    found = evaluate(subject, [pairs_task])
    assert found.model == str(folder)
    assert found.runs[0].results["pairs"].stamp["model_hash"]


def test_layers_of_what_we_cant_read_are_refused(unread):
    for options in ({"layers": ["1"]}, {"every_layer": True}):
        with pytest.raises(ModelError, match=r"pooling mean_sqrt_len_tokens is not one of"):
            load_subject(str(unread[0]), device="cpu", **options)


def test_options_hold_for_what_we_cant_read_too(unread):
    folder, host = unread
    short = load_subject(str(folder), device="cpu", max_length=6)
    host.max_seq_length = 6
    assert np.abs(embedded(short)["as it encodes"] - host.encode(SENTENCES)).max() < 1e-6
    half = load_subject(str(folder), device="cpu", dtype="bfloat16")
    assert half._model.dtype == torch.bfloat16
    with pytest.raises(ModelError, match=r"mean_sqrt_len_tokens.*the onnx backend"):
        load_subject(str(folder), device="cpu", backend="onnx")


def test_static_embeddings_are_evaluated_too(tmp_path, pairs_task):
    words = Tokenizer.from_str(tiny_tokenizer().backend_tokenizer.to_str())
    host = SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=8)], device="cpu")
    store = ResultStore(tmp_path)
    first = evaluate(HostSubject(host), [pairs_task], store=store).runs[0].average
    assert evaluate(HostSubject(host), [pairs_task], store=store).runs[0].average == first
    assert len(list(tmp_path.glob("*.json"))) == 1


def test_a_folder_that_nobody_can_read_is_one_line(unread):
    (unread[0] / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mystery"}))
    with pytest.raises(ModelError, match=r"mystery") as seen:
        load_subject(str(unread[0]), device="cpu")
    assert len(str(seen.value).splitlines()) == 1


def test_hosts_are_told_apart_by_all_that_decides_their_embeddings(tmp_path, tiny_bert, pairs_task):
    def host(pooling="mean", **options) -> SentenceTransformer:
        modules = [Transformer(str(tiny_bert)), Pooling(WIDTH, pooling)]
        return SentenceTransformer(modules=modules, device="cpu", **options)

    short, trained = host(), host()
    short.max_seq_length = 5
    with torch.no_grad():
        trained[0].auto_model.embeddings.word_embeddings.weight += 0.1
    models = [host(), host("cls"), short, trained, host(truncate_dim=8), host(prompts={"p": "the "})]
    models.append(host(prompts={"p": "the "}, default_prompt_name="p"))
    store = ResultStore(tmp_path)
    for number, model in enumerate(models, 1):
        found = evaluate(HostSubject(model), [pairs_task], store=store)
        assert len(list(tmp_path.glob("*.json"))) == number, number
        again = evaluate(HostSubject(model, name="other"), [pairs_task], store=store)
        assert len(list(tmp_path.glob("*.json"))) == number, number
        assert again.runs[0].average == found.runs[0].average


class Letters:
    """The simplest thing that encodes."""

    def encode(self, texts, **options):
        return [[float(text.count(letter)) + 0.1 for letter in "aeiou"] for text in texts]


def test_anything_with_encode_can_be_evaluated(pairs_task):
    found = evaluate(HostSubject(Letters(), name="letters"), [pairs_task])
    assert found.model == "letters"
    assert np.isfinite(found.runs[0].average)
    assert found.runs[0].results["pairs"].stamp["model_hash"] == ""


def test_tensors_are_taken_too(pairs_task):
    class Tensors(Letters):
        def encode(self, texts, **options):
            return torch.tensor(super().encode(texts))

    one, other = (evaluate(HostSubject(model), [pairs_task]) for model in (Letters(), Tensors()))
    assert one.runs[0].average == pytest.approx(other.runs[0].average)


def test_prompts_stand_before_the_texts(tiny_layers):
    model = LayerModel(
        tiny_layers.encoder, "2", prompts={"query": "who ", "plain": "the "}, default_prompt_name="plain"
    )
    for role, prompt in (("", "the "), ("query", "who "), ("document", "")):
        expected = tiny_layers.encoder.encode_layers([prompt + text for text in SENTENCES], layers=[2])[:, 0]
        for mixes in ((), ("2",)):
            (found,) = embedded(LayerSubject(model, mixes), role=role).values()
            assert np.abs(found - expected).max() < 1e-5, (role, mixes)


def test_views_beyond_the_largest_are_not_kept(tiny_layers, monkeypatch, own_cache):
    whole = embedded(LayerSubject(tiny_layers, ["1", "2 @ cls"]))
    monkeypatch.setattr("layerwise.evaluate.subjects._LARGEST_VIEWS", 10)
    monkeypatch.setattr(LayerSubject, "views", lambda *_: pytest.fail("views were asked for"))
    for mix, vectors in embedded(LayerSubject(tiny_layers, ["1", "2 @ cls"])).items():
        assert np.abs(vectors - whole[mix]).max() < 1e-5


def test_without_a_cache_nothing_is_written(tiny_layers, own_cache):
    embedded(LayerSubject(tiny_layers, ["1"], cache=False))
    assert not own_cache.exists()


def test_bad_layers_are_refused(tiny_bert, tiny_layers):
    with pytest.raises(MixError, match=r"There is no layer 9"):
        load_subject(str(tiny_bert), layers=["9"], device="cpu")
    with pytest.raises(InputError, match=r"--layers search cannot be combined"):
        load_subject(str(tiny_bert), layers=["search", "1"], device="cpu")
    with pytest.raises(InputError, match=r"give no embedding"):
        SearchedSubject(tiny_layers).embed(SENTENCES, "", [])
    assert isinstance(load_subject(str(tiny_bert), layers=["search"], device="cpu"), SearchedSubject)


def test_bad_layers_are_refused_before_a_model_is_looked_for(tmp_path):
    for layers, told in ((["lastt"], "'lastt' is not a layer"), (["search", "1"], "search cannot be combined")):
        with pytest.raises((InputError, MixError), match=told):
            load_subject(str(tmp_path / "nowhere"), layers=layers)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"nowhere: no such model folder"):
        load_subject(str(tmp_path / "nowhere"))


def test_a_split_that_a_task_has_not(tiny_layers, pairs_task, caplog):
    caplog.set_level(logging.INFO)
    with pytest.raises(InputError, match=r"task 'pairs' has no train rows; it has dev, test"):
        evaluate(LayerSubject(tiny_layers), [pairs_task], protocol=Protocol(split="train"))


class Plain:
    """No progress bar, no prompts, no weights."""

    def encode(self, texts):
        return np.array([[len(text), text.count("a"), 1.0] for text in texts])


def test_models_and_tasks_may_be_given_as_they_are(tiny_bert, tiny_layers, pairs_task, tmp_path):
    toml = f'[[task]]\nname = "pairs"\nkind = "sts"\nfile = "{pairs_task.file}"\nsplits = {{ test = ["test"] }}\n'
    (tmp_path / "task.toml").write_text(toml)
    by_name = evaluate(str(tiny_bert), [str(tmp_path / "task.toml")])
    by_model = evaluate(tiny_layers, [pairs_task])
    by_subject = evaluate(LayerSubject(tiny_layers, "last"), [pairs_task])
    scores = {found.runs[0].results["pairs"].score for found in (by_name, by_model, by_subject)}
    assert len(scores) == 1
    assert np.isfinite(evaluate(Plain(), [pairs_task]).runs[0].results["pairs"].score)
