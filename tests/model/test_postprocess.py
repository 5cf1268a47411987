"""What was fitted stands behind a model's mix, is saved with it, and says what it was fitted on."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from sentence_transformers import SentenceTransformer

from layerwise import LayerEncoder, LayerModel, ViewCache
from layerwise.errors import ModelError
from layerwise.metrics import cosine, spearman
from layerwise.model import FlowHead, Head, head_of, is_native
from layerwise.postprocess import ENCODER, FittedOn, Flow, RemoveComponents, Whitening
from support.tiny import WIDTH, WORDS

LINEAR = [Whitening(8), RemoveComponents(2), RemoveComponents(1, centre=False)]
# Runs in a process that can't import layerwise.
PLAIN = """
import json, sys
sys.modules["layerwise"] = None
import numpy as np
from sentence_transformers import SentenceTransformer
for name in sys.argv[1:]:
    np.save(f"{name}.npy", SentenceTransformer(name, device="cpu").encode(json.load(open("texts.json"))))
"""


def texts_to_fit_on(count: int = 120) -> list[str]:
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS, random.integers(2, 9))) for _ in range(count)]


@pytest.fixture(scope="module")
def model(tiny_bert) -> LayerModel:
    return LayerModel(LayerEncoder(tiny_bert, device="cpu"), "1,3", prompts={"query": "who "}, chosen="for a test")


def fit(fitted, model: LayerModel, source: str = "made-up words"):
    texts = texts_to_fit_on()
    return fitted.fit(model.encode(texts), fitted_on=FittedOn.of(texts, source=source))


def tiny_flow() -> Flow:
    return Flow(blocks=2, hidden=8, epochs=2, batch_size=16)


@pytest.mark.slow
def test_linear_maps_load_here_and_without_this_package(model, sentences, tmp_path, forks):
    behind = {str(number): model.with_postprocess(fit(fitted, model)) for number, fitted in enumerate(LINEAR)}
    for name, fitted in zip(behind, LINEAR, strict=True):
        expected = fitted.transform(model.encode(sentences))
        np.testing.assert_allclose(behind[name].encode(sentences), expected, atol=1e-4 * np.abs(expected).max())
        assert is_native(behind[name].mix, behind[name].heads)
        behind[name].save(tmp_path / name)
    (tmp_path / "texts.json").write_text(json.dumps(sentences))
    done = forks.run(PLAIN, *behind, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    for name, one in behind.items():
        found = one.encode(sentences)
        for other in (np.load(tmp_path / f"{name}.npy"), LayerModel.load(tmp_path / name).encode(sentences)):
            assert np.abs(other - found).max() < 1e-5 * max(1, np.abs(found).max()), name


def test_a_flow_is_saved_exactly_and_loads_with_trust(model, sentences, tmp_path):
    flow = fit(tiny_flow(), model)
    behind = model.with_postprocess(flow)
    np.testing.assert_allclose(behind.encode(sentences), flow.transform(model.encode(sentences)), atol=1e-4)
    behind.save(tmp_path / "model")
    assert not is_native(behind.mix, behind.heads)
    assert not [path for path in (tmp_path / "model").rglob("*") if path.suffix in (".bin", ".pt", ".pkl")]
    loaded = LayerModel.load(tmp_path / "model")
    assert isinstance(loaded.heads[0], FlowHead)
    for name, tensor in flow.network_.state_dict().items():
        assert tensor.equal(loaded.heads[0].network.state_dict()[name]), name
    assert np.abs(loaded.encode(sentences) - behind.encode(sentences)).max() < 1e-5
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(tmp_path / "model"))
    plain = SentenceTransformer(str(tmp_path / "model"), trust_remote_code=True, device="cpu")
    assert plain.get_embedding_dimension() == WIDTH
    assert np.abs(plain.encode(sentences) - behind.encode(sentences)).max() < 1e-5
    card = (tmp_path / "model" / "README.md").read_text()
    assert "1 flow(s) after the mix" in card
    assert "trust_remote_code=True" in card


def test_several_stand_behind_each_other_each_with_its_record(model, sentences, tmp_path):
    removal = fit(RemoveComponents(1), model, "first")
    once = model.with_postprocess(removal)
    twice = once.with_postprocess(fit(tiny_flow(), once, "second"))
    thrice = twice.with_postprocess(fit(Whitening(5), twice, "third"))
    assert thrice.width == 5
    assert model.heads == model.fitted_on == (), "the first model is as it was"
    assert [(record.what, record.source) for record in thrice.fitted_on] == [
        ("component removal", "first"),
        ("flow", "second"),
        ("whitening", "third"),
    ]
    assert (thrice.chosen, thrice.prompts) == (model.chosen, model.prompts)
    thrice.save(tmp_path / "model")
    plain = SentenceTransformer(str(tmp_path / "model"), trust_remote_code=True, device="cpu")
    assert np.abs(plain.encode(sentences) - thrice.encode(sentences)).max() < 1e-4


def test_the_record_is_written_shown_and_kept(model, tmp_path):
    behind = model.with_postprocess(fit(Whitening(8), model, "made-up | words"))
    behind.save(tmp_path / "first")
    loaded = LayerModel.load(tmp_path / "first")
    assert loaded.fitted_on == behind.fitted_on
    (record,) = loaded.fitted_on
    assert record.saw(texts_to_fit_on()) == 1
    assert record.saw(["never seen", texts_to_fit_on()[0].upper()]) == 0.5
    loaded.save(tmp_path / "second")
    names = [path.relative_to(tmp_path / "first") for path in (tmp_path / "first").rglob("*") if path.is_file()]
    assert "fitted_on/0.safetensors" in map(str, names)
    for name in names:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes(), name
    (facts,) = json.loads((tmp_path / "first" / "layerwise.json").read_text())["fitted_on"]
    assert facts["what"] == "whitening"
    assert facts["digest"] == record.digest
    card = (tmp_path / "first" / "README.md").read_text()
    assert "| fitted on | whitening: 120 sentences of made-up / words |" in card


def test_another_mix_leaves_the_postprocess_and_its_record_but_not_the_encoders(model, tmp_path):
    trained = FittedOn.of(["a text"], source="training text", what=ENCODER)
    behind = LayerModel(model.encoder, "1,3", fitted_on=[trained]).with_postprocess(fit(Whitening(8), model))
    behind.save(tmp_path / "model")
    assert LayerModel.load(tmp_path / "model").fitted_on == behind.fitted_on
    assert LayerModel.load(tmp_path / "model", mix="1").fitted_on == (trained,)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_half_precision_encoders_take_a_flow(tiny_bert, model, sentences, tmp_path):
    flow = fit(tiny_flow(), model)
    half = LayerModel(LayerEncoder(tiny_bert, dtype="bfloat16"), "last @ cls").with_postprocess(flow)
    half.save(tmp_path / "model")
    plain = SentenceTransformer(str(tmp_path / "model"), trust_remote_code=True, device="cpu").encode(sentences)
    assert np.corrcoef(plain.ravel(), half.encode(sentences).ravel())[0, 1] > 0.99


def test_what_does_not_fit_is_refused(model, tiny_bert):
    whitening = fit(Whitening(8), model)
    with pytest.raises(ModelError, match="A head takes 32 numbers, but what comes before it gives 64"):
        LayerModel(model.encoder, "concat(1,2)").with_postprocess(whitening)
    with pytest.raises(
        ModelError, match="Embeddings of length 1 cannot be transformed; fit on a model with normalize=F"
    ):
        LayerModel(model.encoder, "1", normalize=True).with_postprocess(whitening)
    assert isinstance(head_of(whitening), Head)


def test_damaged_folders_are_refused(model, tmp_path):
    model.with_postprocess(fit(tiny_flow(), model)).save(tmp_path / "model")
    copy = shutil.copytree(tmp_path / "model", tmp_path / "no-hashes")
    (copy / "fitted_on" / "0.safetensors").unlink()
    with pytest.raises(ModelError, match="what the model was fitted on cannot be read"):
        LayerModel.load(copy)
    copy = shutil.copytree(tmp_path / "model", tmp_path / "other-count")
    facts = json.loads((copy / "layerwise.json").read_text())
    facts["fitted_on"][0]["different"] += 1
    (copy / "layerwise.json").write_text(json.dumps(facts))
    with pytest.raises(ModelError, match=r"hashes, but layerwise.json says"):
        LayerModel.load(copy)
    copy = shutil.copytree(tmp_path / "model", tmp_path / "other-shape")
    config = next(copy.glob("*_FlowTransform")) / "config.json"
    config.write_text(config.read_text().replace('"blocks": 2', '"blocks": 3'))
    with pytest.raises(ModelError, match=r"not a flow of this version .*; save it again"):
        LayerModel.load(copy)


@pytest.mark.slow
@pytest.mark.shared
def test_whitening_and_a_flow_raise_the_real_encoders_correlation(shared, tmp_path):
    """Fitted on sentences of other pairs than those it is scored on."""
    pairs = pq.read_table(shared / "data" / "sts" / "stsb.parquet", filters=[("split", "=", "test")]).to_pydict()
    first, second = pairs["sentence1"][:500], pairs["sentence2"][:500]
    encoder = LayerEncoder(shared / "models" / "wiki-mlm-12x384", device="cpu")
    views = encoder.encode_layers(first + second, ("mean",), cache=ViewCache(tmp_path))["mean"][:, -1]
    left, right, gold = views[:250], views[500:750], np.array(pairs["score"][:250])
    others = np.concatenate([views[250:500], views[750:]])
    plain = spearman(cosine(left, right), gold)
    for fitted in (Whitening(128), RemoveComponents(3), Flow(epochs=8, batch_size=64)):
        fitted.fit(others)
        assert spearman(cosine(fitted.transform(left), fitted.transform(right)), gold) > plain + 0.03, fitted.name
