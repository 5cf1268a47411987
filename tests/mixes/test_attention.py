"""Attention over layers equals loops over sentences, queries and layers; as a mix it encodes, saves and loads."""

import json
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer

from layerwise import Head, LayerEncoder, LayerModel, parse_mix
from layerwise.errors import InputError, LayerwiseError, MixError, ModelError
from layerwise.evaluate import LayerSubject, load_subject
from layerwise.mixes import Attention, AttentionNetwork
from layerwise.model import is_native
from layerwise.search import Search
from support.attention import network_of
from support.pair_files import made_up_sentences
from support.slow_cases import covering
from support.tiny import DEPTH, SENTENCES, WIDTH

TEXTS = [
    "attention(cls, cls)",
    "attention(mean, mean)",
    "attention(cls, mean)",
    "attention(cls, mean, last=cls)",
    "attention(mean, max, last=cls)",
    "attention(cls, mean, last=cls, scores=ratio)",
]
SLOPE = (1 / 8 + 1 / 3) / 2  # of RReLU below 0, outside training


def naive_weights(network: AttentionNetwork, queries: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """One sentence, (layers, width) twice -> (queries, layers), score by score."""
    layers = len(values)
    keys = [_activated(network, network.key.weight @ vector) for vector in values]
    asking = [_activated(network, network.query.weight @ vector) for vector in queries]
    rows = []
    for i in range(layers):
        if network.scores == "softmax":
            exps = [
                torch.exp(sum(a * b for a, b in zip(keys[j], asking[i], strict=True)) / layers) for j in range(layers)
            ]
        else:  # equation 1 has no i
            exps = [sum(a * b for a, b in zip(asking[j], keys[j], strict=True)) for j in range(layers)]
        rows.append(torch.stack([share / sum(exps) for share in exps]))
    return torch.stack(rows)


def naive(network: AttentionNetwork, queries: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """(batch, layers, width) twice -> (batch, width): a vector for each query, then their mean."""
    found = []
    for own, vectors in zip(queries, values, strict=True):
        weights = naive_weights(network, own, vectors)
        projected = [_activated(network, network.value.weight @ vector) for vector in vectors]
        attended = [sum(w * vector for w, vector in zip(row, projected, strict=True)) for row in weights]
        found.append(sum(attended) / len(attended))
    return torch.stack(found)


def _activated(network: AttentionNetwork, vector: torch.Tensor) -> torch.Tensor:
    return vector if network.scores == "ratio" else torch.where(vector >= 0, vector, SLOPE * vector)


def two_views(seed: int, batch: int, layers: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(batch, layers, width, dtype=torch.float64, generator=generator).requires_grad_() for _ in "qv"
    )


@pytest.mark.parametrize("scores", ["softmax", "ratio"])
@given(st.integers(0, 1000), st.integers(1, 3), st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=15, deadline=None)
def test_the_network_and_its_gradients_equal_loops(scores, seed, batch, layers, width):
    network = network_of(scores, width, seed)
    queries, values = two_views(seed, batch, layers, width)
    found, expected = network(queries, values), naive(network, queries, values)
    size = max(1.0, expected.abs().max().item())  # ratios have no bound
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10 * size)
    target = torch.arange(float(width), dtype=torch.float64)
    inputs = [queries, values, *network.parameters()]
    ours, theirs = (torch.autograd.grad((out * target).sum(), inputs) for out in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8 * max(1.0, other.abs().max().item()))


@pytest.mark.parametrize("scores", ["softmax", "ratio"])
def test_weights_are_public_and_sum_to_one(scores):
    network = network_of(scores, 4)
    queries, values = two_views(1, 3, 5, 4)
    weights = network.weights(queries, values)
    assert weights.shape == (3, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 5, dtype=torch.float64))
    expected = torch.stack([naive_weights(network, *pair) for pair in zip(queries, values, strict=True)])
    torch.testing.assert_close(weights, expected)


def test_in_training_the_slopes_below_zero_are_drawn_by_torch():
    network = AttentionNetwork(8).train()
    views = torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(1))
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(network(views, views))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_it_computes_in_float32_under_autocast_and_of_half_views():
    network, views = AttentionNetwork(8).eval(), torch.randn(2, 5, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(network(views, views), network(views, views).float())
        inside = network(views, views)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, network(views, views))
    assert network(views.bfloat16(), views.bfloat16()).dtype == torch.float32


def test_first_weights_are_small_normal_ones_of_their_seed_alone():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one, same, other = (Attention().fresh(256, seed=seed).fitted for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before), "the global generator is left alone"
    assert one.digest() == same.digest() != other.digest()
    values = torch.cat([parameter.detach().flatten() for parameter in one.parameters()])
    assert len(values) == 3 * 256**2
    assert values.std().item() == pytest.approx(0.02, rel=0.01)
    assert abs(values.mean().item()) < 2e-4


def test_the_digest_tells_scores_and_weights_apart():
    soft, ratio = (AttentionNetwork(4, scores=scores) for scores in ("softmax", "ratio"))
    assert soft.digest() != ratio.digest()
    before = soft.digest()
    with torch.no_grad():
        soft.key.weight[0, 0] += 1
    assert soft.digest() != before


# the mix


@pytest.mark.parametrize("text", TEXTS)
def test_an_attention_parses_and_prints(text):
    mix = parse_mix(text)
    assert isinstance(mix, Attention)
    assert str(mix) == text
    assert parse_mix(text.replace(" ", "")) == parse_mix(f"  {text}", pooling="max") == mix
    assert hash(parse_mix(text)) == hash(mix)
    assert eval(repr(mix), {"Attention": parse_mix}) == mix  # noqa: S307
    assert mix.resolve(12).layers == tuple(range(13))
    assert mix.resolve(12) == mix.resolve(12).resolve(12) == parse_mix(str(mix.resolve(12))).resolve(12)
    assert mix.width(8) == (16 if "last" in text else 8)


def test_poolings_come_once_and_queries_first():
    assert parse_mix("attention(cls, mean, last=cls)").poolings == ("cls", "mean")
    assert parse_mix("attention(mean, max, last=cls)").poolings == ("mean", "max", "cls")
    assert parse_mix("attention(max, max)").poolings == ("max",)
    assert parse_mix("last").poolings == ("mean",)
    assert parse_mix("last @ cls").poolings == ("cls",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("attention", r"an attention needs two token poolings; as in attention\(cls, mean\)"),
        ("attention(cls)", "an attention needs two token poolings"),
        ("attention(cls, last=cls)", "an attention needs two token poolings"),
        ("attention(cls, men)", r"Unknown token pooling 'men'. Did you mean 'mean'\? Known: cls, last, mask, m"),
        ("attention(cls, mean, last=first)", "Unknown token pooling 'first'"),
        ("attention(cls, mean, scores=soft)", "Unknown attention scores 'soft'.*Known: softmax, ratio"),
        ("attention(cls, mean, layers=3)", "'layers=3' is no option of an attention, or comes twice; as in"),
        ("attention(cls, mean, last=cls, last=cls)", "'last=cls' is no option of an attention, or comes twice"),
        ("attention(cls, mean) @ cls", "an attention names its poolings itself; leave '@ cls' out"),
    ],
)
def test_texts_that_are_no_attention_are_refused(text, message):
    with pytest.raises(LayerwiseError, match=message):
        parse_mix(text)


def test_attentions_that_can_not_be_are_refused():
    with pytest.raises(MixError, match=r"does not know the last layer yet: call resolve\(depth\) first"):
        _ = Attention().layers
    with pytest.raises(MixError, match="is over the layers 0 to 12, but this encoder has 0 to 6"):
        Attention().resolve(12).resolve(6)
    with pytest.raises(MixError, match="scores by ratio, but its network by softmax"):
        Attention(scores="ratio").with_fitted(AttentionNetwork(4))
    with pytest.raises(InputError, match="Unknown attention scores 'hard'"):
        AttentionNetwork(4, scores="hard")
    with pytest.raises(MixError, match=r"needs views by cls and mean, but these \(7, 1, 5, 8\) are by 1 token pooling"):
        Attention().fresh(8, seed=1)(np.zeros((7, 5, 8), dtype=np.float32))
    with pytest.raises(TypeError, match="pooling"):
        Attention(pooling="cls")


def test_views_of_one_pooling_are_enough_where_all_are_of_it():
    mix = parse_mix("attention(mean, mean, last=mean)").fresh(8, seed=1)
    mix.fitted.eval()
    views = np.random.default_rng(1).normal(size=(3, 7, 5, 8)).astype(np.float32)
    found = mix(views)
    assert found.shape == (3, 7, 16)
    np.testing.assert_allclose(found[1], mix(torch.from_numpy(views[1])).detach(), atol=1e-6)
    np.testing.assert_array_equal(found[..., :8], views[..., -1, :])


# the model


def attentive(folder, text: str = TEXTS[3], **options) -> LayerModel:
    """A model with an attention that is far from even."""
    mix = parse_mix(text).fresh(WIDTH, seed=5)
    with torch.no_grad():
        for parameter in mix.fitted.parameters():
            parameter.mul_(10)
    return LayerModel(folder, mix, **options)


@pytest.mark.parametrize("text", TEXTS)
def test_a_model_equals_loops_over_its_views(text, tiny_bert):
    model = attentive(tiny_bert, text)
    mix, network = model.mix, model.mix.fitted
    views = model.encoder.encode_layers(SENTENCES, ["cls", "mean", "max"])
    tensors = {name: torch.from_numpy(array) for name, array in views.items()}
    with torch.no_grad():
        expected = naive(network, tensors[mix.queries], tensors[mix.values])
        expected = torch.cat([tensors[mix.last][:, -1], expected], -1) if mix.last else expected
    found = model.encode(SENTENCES)
    assert found.shape == (len(SENTENCES), model.width) == (len(SENTENCES), mix.width(WIDTH))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * max(1, expected.abs().max().item()))


@pytest.mark.parametrize(
    ("architecture", "text"),
    covering(
        ["bert", "modernbert", "distilbert"],
        [
            "attention(cls, mean)",
            "attention(cls, mean, last=cls, scores=ratio)",
            'attention(mask in means, mean in "In short, {text} is {mask}", last=mask in means)',
        ],
    ),
)
def test_a_saved_attention_gives_the_same_embeddings(text, architecture, tiny_folders, sentences, tmp_path):
    heads = [Head(torch.randn(8, parse_mix(text).width(WIDTH), generator=torch.Generator().manual_seed(1)) / 8)]
    model = attentive(tiny_folders[architecture], text, heads=heads, normalize=True)
    assert not is_native(model.mix)
    expected = model.encode(sentences)
    model.save(tmp_path / "model")
    loaded = LayerModel.load(tmp_path / "model", device="cpu")
    assert loaded.mix == model.mix
    assert loaded.mix.fitted.digest() == model.mix.fitted.digest()
    assert np.abs(loaded.encode(sentences) - expected).max() < 1e-6
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(tmp_path / "model"))
    plain = SentenceTransformer(str(tmp_path / "model"), trust_remote_code=True, device="cpu")
    assert plain.get_embedding_dimension() == model.width == 8
    assert np.abs(plain.encode(sentences) - expected).max() < 1e-5
    assert not [path for path in (tmp_path / "model").rglob("*") if path.suffix in (".bin", ".pt", ".pkl")]


def test_saving_what_was_loaded_changes_nothing(tiny_bert, tmp_path):
    attentive(tiny_bert, training={"seed": 1}).save(tmp_path / "first")
    LayerModel.load(tmp_path / "first").save(tmp_path / "second")
    first, second = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (tmp_path / "first", tmp_path / "second")
    )
    assert first == second


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_a_half_precision_encoder_keeps_a_full_attention(tiny_bert, sentences, tmp_path):
    heads = [Head(torch.randn(8, 2 * WIDTH, generator=torch.Generator().manual_seed(1)) / 8)]
    full = attentive(tiny_bert, heads=heads).encode(sentences)
    model = attentive(LayerEncoder(tiny_bert, dtype="bfloat16"), heads=heads)
    assert model.mix.fitted.key.weight.dtype == torch.float32
    model.save(tmp_path / "model")
    plain = SentenceTransformer(str(tmp_path / "model"), trust_remote_code=True, device="cpu")
    for found in (model.encode(sentences), plain.encode(sentences)):
        assert found.shape == (len(sentences), 8)
        assert np.abs(found - full).max() < 0.15


def test_a_model_puts_the_network_into_evaluation(tiny_bert, sentences):
    mix = parse_mix(TEXTS[2]).fresh(WIDTH, seed=1)
    mix.fitted.train()
    model = LayerModel(tiny_bert, mix)
    assert not model.mix.fitted.training
    assert np.array_equal(model.encode(sentences), model.encode(sentences))


def test_the_pooler_can_be_dropped_after_training(tiny_bert, sentences, tmp_path):
    attentive(tiny_bert).save(tmp_path / "model")
    dropped = LayerModel.load(tmp_path / "model", mix="last @ cls")
    assert np.abs(dropped.encode(sentences) - LayerModel(tiny_bert, "last @ cls").encode(sentences)).max() < 1e-6


def test_models_that_can_not_be_are_refused(tiny_bert):
    message = r"attention\(cls, mean\) has no weights: they come from training; see `layerwise train`"
    with pytest.raises(MixError, match=message):
        LayerModel(tiny_bert, "attention(cls, mean)")
    with pytest.raises(MixError, match=message):
        LayerSubject(LayerModel(tiny_bert), ["attention(cls, mean)"])
    with pytest.raises(MixError, match="has weights for layers of 8 numbers; this encoder's have 32"):
        LayerModel(tiny_bert, Attention().fresh(8, seed=1))


def test_damaged_folders_are_refused(tiny_bert, tmp_path):
    attentive(tiny_bert).save(tmp_path / "model")
    inside = "1_MixPooling"
    config = json.loads((tmp_path / "model" / inside / "config.json").read_text())
    assert config == {"mix": TEXTS[3], "word_embedding_dimension": WIDTH, "depth": DEPTH}
    for number, (change, message) in enumerate(
        [
            ({"mix": "1,2"}, "learns nothing from text, so it takes no weights"),
            ({"word_embedding_dimension": 8}, f"its weights are for layers of {WIDTH} numbers, but config says 8"),
            ({"depth": DEPTH + 1}, f"is over the layers 0 to {DEPTH + 1}, but this encoder has 0 to {DEPTH}"),
            ({"depth": "deep"}, "holds a value of another kind"),
        ]
    ):
        folder = shutil.copytree(tmp_path / "model", tmp_path / f"copy-{number}")
        (folder / inside / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(LayerwiseError, match=message):
            LayerModel.load(folder)
    (tmp_path / "model" / inside / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="the folder is incomplete or pickled"):
        LayerModel.load(tmp_path / "model")


def test_onnx_reads_several_poolings(tiny_bert, sentences):
    pytest.importorskip("onnxruntime")
    onnx = attentive(LayerEncoder(tiny_bert, device="cpu", backend="onnx"))
    assert np.abs(onnx.encode(sentences) - attentive(tiny_bert).encode(sentences)).max() < 1e-4


# where models are used


def test_an_attention_is_evaluated_by_its_own_embeddings(tiny_bert, tmp_path):
    model = attentive(tiny_bert, heads=[Head(torch.ones(3, 2 * WIDTH) / 64)])
    model.save(tmp_path / "model")
    subject = load_subject(str(tmp_path / "model"), device="cpu")
    (variant,) = subject.variants
    assert (variant.label, variant.pooling) == (TEXTS[3], "cls+mean")
    assert variant.layers == tuple(range(DEPTH + 1))
    (found,) = subject.embed(SENTENCES, "", [variant])
    assert np.abs(found - model.encode(SENTENCES)).max() < 1e-5
    assert variant.facts["mix_digest"] == model.mix_digest()
    with torch.no_grad():
        model.mix.fitted.value.weight[0, 0] += 1
    assert LayerSubject(model).variants[0].facts["mix_digest"] != variant.facts["mix_digest"]


def test_attentions_of_one_text_but_other_weights_are_not_taken_for_one(tiny_layers):
    mixes = [parse_mix(TEXTS[2]).fresh(WIDTH, seed=seed) for seed in (1, 2)]
    with pytest.raises(InputError, match="several attentions of one text but of different weights"):
        LayerSubject(tiny_layers, mixes)
    assert len(LayerSubject(tiny_layers, [mixes[0], mixes[0], "last"]).variants) == 2


def test_a_run_of_embed_knows_other_weights(tiny_bert):
    model = attentive(tiny_bert)
    before = model.digest()
    assert attentive(tiny_bert).digest() == before
    with torch.no_grad():
        model.mix.fitted.value.weight[0, 0] += 1
    assert model.digest() != before


def test_a_search_says_that_the_attention_takes_no_part(tiny_bert):
    model = attentive(tiny_bert, training={"seed": 3})
    rows = [(left, right, number % 6) for number, (left, right) in enumerate(zip(*made_up_sentences(), strict=True))]
    selection = Search(space="1-2").fit(model, rows).selection_
    assert f"sets of layers are searched, so the model's mix {TEXTS[3]} is left out" in selection.warnings
    assert selection.model().width == WIDTH


def test_info_and_embed_take_a_saved_attention(tiny_bert, tmp_path):
    from typer.testing import CliRunner

    from layerwise.cli.app import app

    model = attentive(tiny_bert, training={"recipe": "simcse", "scores": {"STS-B": 80.5}})
    model.save(tmp_path / "model")
    done = CliRunner().invoke(app, ["info", str(tmp_path / "model"), "--json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.output)
    assert (facts["mix"], facts["embedding_width"]) == (TEXTS[3], 2 * WIDTH)
    assert facts["loads_in_sentence_transformers"] is False
    assert facts["training"] == {"recipe": "simcse", "scores": {"STS-B": 80.5}}
    table = CliRunner().invoke(app, ["info", str(tmp_path / "model")], env={"COLUMNS": "200"}).output
    assert "recipe: simcse; scores.STS-B: 80.5" in table
    (tmp_path / "texts.txt").write_text("\n".join(SENTENCES))
    out = tmp_path / "out.npy"
    arguments = ["embed", str(tmp_path / "model"), str(tmp_path / "texts.txt"), "--out", str(out)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert np.abs(np.load(out) - model.encode(SENTENCES)).max() < 1e-5
