"""The engine on a tiny encoder: it learns, equals a plain loop, and keeps what it says."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from layerwise.encoder import PLAIN, SentenceTokenizer
from layerwise.errors import InputError, LayerwiseError
from layerwise.evaluate import evaluate
from layerwise.measures import alignment, layer_similarity, token_similarity, uniformity
from layerwise.mixes import Mean, parse_mix
from layerwise.model import LayerModel
from layerwise.objectives import info_nce, squared_distance
from layerwise.train import ContrastiveJob, Corpus, DevSettings, read_corpus, train
from layerwise.train.contrastive.batches import Batches
from layerwise.train.contrastive.dev import DevScore
from layerwise.train.contrastive.frozen import FrozenCopy, FrozenViews
from layerwise.train.contrastive.prompted import prompt_of, training_tokenizer
from layerwise.train.contrastive.student import build_student
from layerwise.train.contrastive.teachers import rotated, teachers_vectors
from layerwise.train.contrastive.terms import FrozenSettings
from layerwise.train.loop.grad_cache import cached_backward
from support.slow_cases import covering, one_in, some_slow
from support.tiny import SENTENCES, WIDTH
from support.training import (
    encoder_of,
    losses,
    recipe,
    said,
    same_weights,
    save_dev,
    save_masked_bert,
    term,
    texts,
    train_recipe,
    trainings,
    weights,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_masked_bert(tmp_path_factory.mktemp("masked") / "bert")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return str(save_dev(tmp_path_factory.mktemp("data")))


@pytest.fixture
def run(folder, tmp_path):
    return trainings(folder, tmp_path)


def batch_of(encoder, corpus, *, copies=1, rows=8, seed=0, pooler=None):
    tokenizer = training_tokenizer(encoder, prompt_of(pooler or Mean.of(-1)), max_length=16)
    return next(iter(Batches(corpus, tokenizer, batch_size=rows, copies=copies, pad_id=0, seed=seed)))


INFO_NCE = term("info-nce")
OBJECTIVES = {
    "info-nce": (INFO_NCE,),
    "info-nce of pairs": (INFO_NCE, 2),
    "info-nce of triples": (term("info-nce", hard_negative_weight=1.0), 3),
    "nt-xent": (term("nt-xent"), 2),
    **{f"sg {form}": (term("sg", form=form, hidden=24, temperature=0.1),) for form in ("base", "opt1", "opt2", "opt3")},
    "sg of the paraphrase": (term("sg", column=1, hidden=0), 2),
    "sscl": (term("sscl"),),
    "sscl progressive": (term("sscl", layers=(-2, -3)),),
    "sscl of itself": (term("sscl", positives="self", with_plain=False),),
    "sscl of a frozen layer": (term("sscl", positives="frozen"),),
    "mlm": (INFO_NCE, term("mlm", weight=1.0, share=0.5)),
    "diffcse": (INFO_NCE, term("diffcse", weight=1.0, share=0.5)),
    "ranking": (INFO_NCE, term("ranking", weight=0.5)),
    "whitening": (INFO_NCE, term("whitening", weight=0.5, ridge=0.1)),
    "sscl beside sg": (term("sscl"), term("sg", form="opt2", temperature=0.1)),
}
POOLERS = [
    ("last @ cls", "none"),
    ("last @ mean", "none"),
    ("last @ max", "none"),
    ("first-last @ mean", "none"),
    ("last @ cls | last @ mean", "none"),
    ("last @ mean | first-last @ mean", "none"),
    ("attention(cls, cls)", "none"),
    ("attention(mean, mean)", "none"),
    ("attention(cls, mean)", "none"),
    ("attention(cls, mean, last=cls)", "none"),
    ("attention(mean, mean, scores=ratio)", "none"),
    ("last @ cls", "mlp"),
    ("attention(cls, mean, last=cls)", "linear"),
    ("last @ cls", "mlp-bn"),
    ("last @ mask in means", "none"),
    ("last @ mask in means", "mlp"),
    ('last @ mean in "the rain said {text} over text"', "none"),
    ("views(2,4 @ mask in means; 3 @ mean in means; unit)", "none"),
]
COVERED = {  # by other poolers: each pooling, prompt, set of layers, form of attention and head is still trained
    ("last @ cls", "none"),
    ("last @ mean", "none"),
    ("first-last @ mean", "none"),
    ("last @ cls | last @ mean", "none"),
    ("attention(cls, cls)", "none"),
    ("attention(mean, mean)", "none"),
    ("attention(cls, mean)", "none"),
    ("attention(cls, mean, last=cls)", "none"),
    ("last @ cls", "mlp"),
    ("last @ mask in means", "none"),
}


def learns(trained):
    """The last three losses are below the first three, on the same eight rows again and again."""
    found = losses(trained)
    assert sum(found[-3:]) < 0.97 * sum(found[:3]), found


ALIKE = {
    *("info-nce of pairs", "sg base", "sg opt1", "sg opt3", "sscl progressive", "sscl of itself"),
    "sg of the paraphrase",  # the views of that column are trained on below
    "sscl beside sg",
}


@pytest.mark.parametrize("name", one_in(2, some_slow(OBJECTIVES, slow=ALIKE)))
def test_every_objective_learns(run, name):
    *terms, columns = (*OBJECTIVES[name], 1) if not isinstance(OBJECTIVES[name][-1], int) else OBJECTIVES[name]
    trained = run(recipe(*terms, columns=columns, steps=12, learning_rate=2e-3), texts(8, columns))
    learns(trained)
    if len(terms) > 1:
        parts = [sum(line[f"loss_{one.name}"] * one.weight for one in terms) for line in trained.history]
        assert parts == pytest.approx(losses(trained), rel=1e-4)


@pytest.mark.parametrize(("pooler", "head"), one_in(2, some_slow(POOLERS, slow=COVERED)))
def test_every_pooler_learns(run, pooler, head):
    model = {"pooler": pooler, "head": head, "width": 8 if head == "linear" else None}
    model |= {"dropout": 0.02} if head == "mlp-bn" else {}  # batch norm of eight rows makes much of noise
    trained = run(recipe(model=model, steps=12, learning_rate=2e-3), texts(8))
    learns(trained)
    assert trained.model.encode(SENTENCES).shape == (len(SENTENCES), trained.student.pooler.width(32))


@pytest.mark.parametrize(
    "options",
    one_in(
        2,
        [
            {},
            {"similarities": "list-mle", "vectors": 0.0},
            pytest.param({"similarities": "none", "vectors": 2.0}, marks=pytest.mark.slow),
        ],
    ),
)
def test_a_student_comes_nearer_to_its_teacher(run, tiny_folders, options):
    teacher = LayerModel.load(tiny_folders["roberta"], device="cpu")
    corpus, apart = texts(8), []
    what = recipe(term("distil", teacher=str(tiny_folders["roberta"]), **options), steps=20, learning_rate=3e-3)
    trained = run(what, corpus)
    learns(trained)
    expected = cosine_matrix(teacher.encode(list(corpus.columns[0])))
    for model in (LayerModel.load(trained.student.encoder.folder.root, device="cpu"), trained.model):
        apart.append(np.abs(cosine_matrix(model.encode(list(corpus.columns[0]))) - expected).mean())
    assert apart[1] < apart[0]
    facts = trained.facts["teacher"]
    assert (facts["name"], facts["mix"], facts["model"]) == ("roberta", str(teacher.mix), teacher.digest())
    assert facts["saw"] == "not recorded"


def cosine_matrix(vectors):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


def test_two_teachers_teach_the_weighted_mean_of_their_similarities(run, tiny_folders):
    names = [str(tiny_folders[name]) for name in ("roberta", "bert")]
    teachers, corpus = [LayerModel.load(name, device="cpu") for name in names], texts(8)
    settings = term("distil", teacher=names, teacher_weights=[3, 1])
    vectors = teachers_vectors(teachers, settings.frozen.weights, corpus.columns[0])
    each = [cosine_matrix(teacher.encode(list(corpus.columns[0]))) for teacher in teachers]
    np.testing.assert_allclose(vectors @ vectors.T, 0.75 * each[0] + 0.25 * each[1], atol=1e-5)
    trained = run(recipe(settings, steps=12, learning_rate=2e-3), corpus)
    learns(trained)
    assert [taught["name"] for taught in trained.facts["teacher"]] == ["roberta", "bert"]
    assert trained.student.terms["distil"].projection.out_features == 2 * WIDTH
    with pytest.raises(InputError, match="1 teacher_weights for 2 teacher"):
        term("distil", teacher=names, teacher_weights=[1])
    with pytest.raises(InputError, match="no teacher"):
        term("distil", teacher=[])


@pytest.mark.parametrize(("wide", "width"), [(40, 24), (24, 24), (16, 24)])
def test_rotated_vectors_keep_their_cosines_and_lie_near_the_start(wide, width):
    random = np.random.default_rng(0)
    hidden = random.normal(size=(300, min(wide, width)))  # so many dimensions are all that there is
    vectors = hidden @ random.normal(size=(hidden.shape[1], wide))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    start = hidden @ random.normal(size=(hidden.shape[1], width)) + random.normal(size=(300, width))
    turned = rotated(vectors, start[:200])
    assert turned.shape == (300, width)
    np.testing.assert_allclose(turned @ turned.T, vectors @ vectors.T, atol=1e-5)
    near = (turned * start / np.linalg.norm(start, axis=1, keepdims=True)).sum(axis=1).mean()
    for _ in range(5):  # no other turn is nearer
        other, _ = np.linalg.qr(random.normal(size=(width, width)))
        assert (turned @ other * start / np.linalg.norm(start, axis=1, keepdims=True)).sum(axis=1).mean() < near


def test_a_wider_teachers_vectors_keep_their_principal_components():
    random = np.random.default_rng(0)
    vectors = random.normal(size=(400, 20)) * np.linspace(3, 0.1, 20)
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    _, _, directions = np.linalg.svd(vectors.astype(np.float64), full_matrices=False)
    turned = rotated(vectors, random.normal(size=(400, 6)))
    np.testing.assert_allclose(turned @ turned.T, cosine_matrix(vectors @ directions[:6].T), atol=1e-5)


def test_a_student_learns_rotated_vectors_of_two_teachers(run, tiny_folders):
    names = [str(tiny_folders[name]) for name in ("roberta", "bert")]
    corpus = texts(2 * WIDTH)
    what = recipe(term("distil", teacher=names, projection="rotation"), steps=20, learning_rate=2e-3)
    trained = run(what, corpus)
    learns(trained)
    assert not list(trained.student.terms["distil"].parameters())


def test_a_rotation_that_cannot_be_is_refused_before_a_teacher_reads_the_text(run, tiny_folders, monkeypatch):
    what = recipe(term("distil", teacher=str(tiny_folders["bert"]), projection="rotation"), steps=20)
    with pytest.raises(InputError, match='give head = "none" or keep_head = true'):
        what.replaced(model=what.model.replaced(head="mlp", keep_head=False))
    with pytest.raises(InputError, match="leave inference out"):
        what.replaced(model=what.model.replaced(inference="last @ cls"))
    monkeypatch.setattr(LayerModel, "encode", lambda *_, **__: pytest.fail("a model reads texts"))
    with pytest.raises(InputError, match=rf"needs at least {WIDTH} sentences of text.* there are {WIDTH - 1}"):
        run(what, texts(WIDTH - 1))


@pytest.mark.slow
def test_a_teachers_embeddings_are_read_by_the_next_seed_and_training(run, tiny_folders, monkeypatch):
    corpus, encoded = texts(8), []
    encode = LayerModel.encode
    monkeypatch.setattr(
        LayerModel, "encode", lambda model, rows, **o: encoded.append(len(rows)) or encode(model, rows, **o)
    )
    what = recipe(term("distil", teacher=str(tiny_folders["roberta"])), steps=2)
    first = run(what, corpus)
    assert encoded == [8]
    again = run(what, corpus)
    run(what, corpus, seed=5)
    assert encoded == [8]
    assert losses(again) == losses(first)
    run(what, texts(9))  # other texts
    other = recipe(term("distil", teacher=str(tiny_folders["bert"])), steps=2)
    run(other, corpus)  # another teacher
    assert encoded == [8, 9, 8]
    teacher = LayerModel.load(tiny_folders["roberta"], device="cpu")
    expected = encode(teacher, list(corpus.columns[0]), normalize_embeddings=True)
    np.testing.assert_array_equal(teachers_vectors([teacher], [1.0], corpus.columns[0]), expected)
    assert encoded == [8, 9, 8]


@pytest.mark.parametrize("pooler", ["last @ mask in means", "attention(cls, mean)"])
def test_the_queue_holds_what_a_slow_encoder_without_dropout_gives(folder, pooler):
    what = recipe(term("info-nce", queue=6, momentum=0.0), columns=2, model={"pooler": pooler, "head": "mlp"})
    encoder, corpus = encoder_of(folder), texts(4, 2)
    student = build_student(what, encoder, seed=0).train()
    batch, queue = batch_of(encoder, corpus, rows=4, pooler=student.pooler), student.terms["info-nce"].queue
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.mul_(1.1)
        first = student(batch)["loss"]  # of an empty queue
        assert int(queue.count) == 4
        second = student.eval()(batch)
    expected = student.run_pass(student.passes(batch)[0])["embeddings"][:4]  # momentum 0: as the student is now
    torch.testing.assert_close(queue.vectors[:4], expected.detach())
    assert torch.equal(queue.vectors[4:], torch.zeros_like(queue.vectors[4:]))
    both = student.run_pass(student.passes(batch)[0])["embeddings"].view(2, 4, -1)
    torch.testing.assert_close(second["loss"], info_nce(both[0], both[1], expected))
    assert not any(parameter.requires_grad for parameter in queue.parameters())
    assert first.isfinite()


def test_the_second_view_has_words_twice(run, folder):
    corpus, tokenizer = texts(16), training_tokenizer(encoder_of(folder), PLAIN, max_length=30)
    batches = Batches(corpus, tokenizer, batch_size=8, pad_id=0, seed=1, repetition=0.5)
    first, second = (list(batches) for _ in range(2))
    for one, again in zip(first, second, strict=True):
        assert torch.equal(one["input_ids"], again["input_ids"])  # of a seed and an epoch
        lengths = one["attention_mask"].sum(1).view(2, -1)
        assert (lengths[1] >= lengths[0]).all()
        assert (lengths[1] > lengths[0]).any()
        for row, number in enumerate(one["rows"]):
            plain, longer = (one["input_ids"][row + half * 8][: lengths[half, row]].tolist() for half in (0, 1))
            assert sorted(set(plain)) == sorted(set(longer)), corpus.columns[0][number]
    learns(run(recipe(data={"repetition": 0.32}, steps=12, learning_rate=2e-3), texts(8)))
    with pytest.raises(InputError, match="repetition is of the second view of a sentence"):
        recipe(columns=2, data={"repetition": 0.32})


def test_texts_stand_in_the_poolers_prompt(run):
    pooler = "last @ mask in means"
    trained = run(recipe(model={"pooler": pooler}, steps=2), texts(8))
    student, corpus = trained.student.eval(), texts(8)
    batch = batch_of(student.encoder, corpus, pooler=student.pooler)
    assert set(batch) == {"input_ids", "attention_mask", "places", "rows"}
    mask_id = student.encoder.tokenizer.mask_token_id
    assert (batch["input_ids"].gather(1, batch["places"][:, 2:]) == mask_id).all()
    (encoder_pass,) = student.passes(batch)
    expected = trained.model.encode([corpus.columns[0][row] for row in batch["rows"]], convert_to_tensor=True)
    torch.testing.assert_close(student.encode(*encoder_pass.inputs)["embeddings"], expected, rtol=1e-4, atol=1e-5)


def test_the_text_has_its_length_beside_the_prompt(folder):
    encoder = encoder_of(folder)
    plain, prompted = (
        training_tokenizer(encoder, prompt_of(parse_mix(f"last @ {pooling}")), max_length=8)
        for pooling in ("mean", "mask in means")
    )
    long = "rain " * 40
    (alone,), (within,), (empty,) = plain([long]).ids, prompted([long]).ids, prompted([""]).ids
    assert len(alone) == 8
    assert len(within) - len(empty) == 8 - encoder.tokenizer.num_special_tokens_to_add()


def test_the_same_seed_gives_the_same_and_another_another(run):
    what = recipe(INFO_NCE, term("sg", form="opt2"), model={"pooler": "attention(cls, mean)"}, steps=4)
    one, again, other = (run(what, seed=seed) for seed in (3, 3, 4))
    assert losses(one) == losses(again)
    assert same_weights(one, again)
    assert losses(one) != losses(other)


def test_every_layer_comes_from_one_pass_a_step(folder, tmp_path):
    encoder, calls, at_step = encoder_of(folder), [], []
    handle = encoder.model.encoder.layer[0].register_forward_pre_hook(lambda block, _: calls.append(block.training))
    terms = (INFO_NCE, term("sscl", layers=(0, 1, 2), anchors="last"), term("sg"))
    what = recipe(*terms, columns=3, model={"pooler": "attention(cls, mean)"})
    train_recipe(what, tmp_path, encoder=encoder, corpus=texts(48, 3), on_step=lambda *_: at_step.append(len(calls)))
    handle.remove()
    assert [after - before for before, after in pairwise(at_step)] == [1] * 5
    assert not any(calls[: at_step[0] - 1])  # the frozen copy's views
    assert all(calls[at_step[0] - 1 :])  # dropout is on from the first step


def test_training_equals_a_plain_loop_with_the_pull_by_autograd(run, folder):
    what = recipe(term("sg", hidden=8, pull=0.7), model={"dropout": 0.0}, learning_rate=1e-2, max_grad_norm=0.0)
    corpus = texts(48)
    trained = run(what, corpus, seed=2)
    encoder = encoder_of(folder)
    student = build_student(what, encoder, seed=2)
    views = FrozenViews.of(encoder, corpus.columns[0], what.frozen, max_length=16)
    learned = [weight for weight in student.backbone.parameters() if weight.requires_grad]
    start = [weight.detach().clone() for weight in learned]
    optimiser = torch.optim.AdamW(student.parameters(), lr=1e-2, weight_decay=0.0)
    tokenizer = SentenceTokenizer(encoder.tokenizer, max_length=16)
    found = []
    for batch in Batches(corpus, tokenizer, batch_size=8, pad_id=0, seed=2):
        loss = student(batch | {"frozen": views(batch)})["loss"]
        (loss + 0.7 * squared_distance(learned, start)).backward()
        optimiser.step()
        optimiser.zero_grad()
        found.append(loss.item())
    assert losses(trained) == pytest.approx(found, rel=1e-4)
    most = 2 * 1e-2 * len(found)  # of a key's bias: its gradient is rounding alone, which Adam makes whole steps of
    for name, weight in student.state_dict().items():
        atol = most if name.endswith("key.bias") else 1e-4
        torch.testing.assert_close(weights(trained)[name], weight, rtol=1e-3, atol=atol)


def test_a_data_folder_that_is_not_there_is_told_before_training(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERWISE_DATA", str(tmp_path / "nowhere"))
    job = ContrastiveJob(recipe(), encoder=str(folder), corpus=texts(8))
    with pytest.raises(InputError, match="nowhere: LAYERWISE_DATA does not exist"):
        train(job, tmp_path / "run")
    assert not list((tmp_path / "run").iterdir())


def test_frozen_embeddings_stay(run, folder):
    trained, before = run(recipe(model={"freeze": ("embeddings",)}, steps=2)), encoder_of(folder).model.state_dict()
    same = {
        name: torch.equal(value, before[name]) for name, value in trained.student.encoder.model.state_dict().items()
    }
    assert all(same[name] for name in same if name.startswith("embeddings"))
    assert not any(same[name] for name in same if name.endswith("output.dense.weight"))


@pytest.mark.parametrize(("pooling", "column"), covering(["mean", "cls", "max"], [0, 1]))
def test_views_kept_are_those_of_a_copy_that_runs_along(folder, pooling, column):
    encoder, corpus = encoder_of(folder), texts(16, 2)
    settings = FrozenSettings(pooling, "1-3", column)
    batch = batch_of(encoder, corpus)
    kept = FrozenViews.of(encoder, corpus.columns[column], settings, max_length=16)(batch)
    copy = FrozenCopy(encoder, settings)
    torch.testing.assert_close(kept, copy(batch), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        encoder.model.encoder.layer[0].output.dense.weight.add_(1)
    torch.testing.assert_close(kept, copy(batch), rtol=1e-4, atol=1e-5)
    texts_read = [corpus.columns[column][row] for row in batch["rows"]]
    fresh = torch.from_numpy(encoder_of(folder).encode_layers(texts_read, pooling, layers=[1, 2, 3]))
    torch.testing.assert_close(kept, fresh, rtol=1e-4, atol=1e-5)


def test_training_is_the_same_with_kept_views_and_with_a_copy(run, monkeypatch):
    found = {}
    for column in (0, 1):
        sg, columns = term("sg", hidden=8, column=column), column + 1
        what = recipe(sg, columns=columns, steps=3, model={"dropout": 0.0}, data={"bucket": False})
        with monkeypatch.context() as patch:
            kept = run(what, texts(24, columns))
            patch.setattr("layerwise.train.contrastive.job.MAX_BYTES", 0)
            along = run(what, texts(24, columns))
        assert losses(kept) == pytest.approx(losses(along), rel=1e-3)
        found[column] = losses(kept)
    assert found[0] != pytest.approx(found[1], rel=1e-2)


CACHED = {
    "pairs": (recipe(columns=2, model={"dropout": 0.0}), 2),
    "sscl through a head": (recipe(term("sscl"), columns=2, model={"dropout": 0.0, "head": "mlp"}), 2),
    "attention and sscl": (
        recipe(
            INFO_NCE, term("sscl", anchors="last"), columns=2, model={"dropout": 0.0, "pooler": "attention(cls, mean)"}
        ),
        2,
    ),
    "sg": (recipe(term("sg", hidden=8), model={"dropout": 0.0}), 1),
    "a prompt": (recipe(columns=2, model={"dropout": 0.0, "pooler": "last @ mask in means"}), 2),
}


@pytest.mark.parametrize("name", one_in(2, some_slow(CACHED, slow={"pairs"})))
def test_gradient_caching_equals_the_plain_step(folder, name):
    what, columns = CACHED[name]
    encoder, corpus = encoder_of(folder), texts(4, columns)
    student = build_student(what, encoder, seed=0).eval()  # attention's RReLU would draw its slopes
    batch = batch_of(encoder, corpus, rows=4, pooler=student.pooler)
    frozen = FrozenCopy(encoder, what.frozen)(batch) if what.frozen else None
    student(batch | {"frozen": frozen})["loss"].backward()
    plain, loss = [weight.grad for weight in student.parameters()], student(batch | {"frozen": frozen})["loss"]
    for chunk in range(1, 4 * columns + 2):
        student.zero_grad()
        found = cached_backward(student, batch | {"frozen": frozen}, chunk=chunk)
        torch.testing.assert_close(found["loss"], loss.detach(), rtol=1e-5, atol=1e-5)
        for weight, gradient in zip(student.parameters(), plain, strict=True):
            assert (weight.grad is None) == (gradient is None)
            if gradient is not None:
                torch.testing.assert_close(weight.grad, gradient, rtol=1e-3, atol=1e-5)


def test_the_second_pass_of_gradient_caching_has_the_same_dropout(folder):
    encoder = encoder_of(folder)
    student = build_student(recipe(), encoder, seed=0).train()
    batch, passes, encode = batch_of(encoder, texts(4), rows=4, copies=2), [], student.encode
    student.encode = lambda *given: passes.append(encode(*given)) or passes[-1]
    cached_backward(student, batch, chunk=3)
    first, second = passes[:3], passes[3:]
    assert [len(part["embeddings"]) for part in first] == [3, 3, 2]
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one["embeddings"], other["embeddings"].detach())
    views = torch.cat([part["embeddings"] for part in first])
    assert not torch.allclose(views[:4], views[4:], atol=1e-3)


@pytest.mark.slow
def test_gradient_caching_in_bf16(folder, tmp_path, monkeypatch):
    encoder, seen = encoder_of(folder), []
    what = recipe(columns=2, model={"dropout": 0.0})
    student, batch = build_student(what, encoder, seed=0), batch_of(encoder, texts(4, 2), rows=4)

    def bf16(*_):
        return torch.autocast("cpu", torch.bfloat16)

    with bf16():
        loss = student(batch)["loss"]
    loss.backward()
    plain = {name: weight.grad for name, weight in student.named_parameters() if weight.grad is not None}
    student.zero_grad()
    cached_backward(student, batch, chunk=3, precision=bf16)
    for name, gradient in plain.items():
        found = student.get_parameter(name).grad
        assert found is not None, f"{name}: the pass without a graph has cast it for both"
        assert (found - gradient).norm() <= 0.1 * gradient.norm() + 1e-3
    monkeypatch.setattr("accelerate.Accelerator.autocast", bf16)  # the host has none on a CPU
    dense = encoder.model.encoder.layer[1].intermediate.dense
    handle = dense.register_forward_hook(lambda *given: seen.append(given[-1].dtype))
    train_recipe(recipe(chunk=4, steps=2, model={"dropout": 0.1}), tmp_path, encoder=encoder, corpus=texts())
    handle.remove()
    assert set(seen[-16:]) == {torch.bfloat16}  # two steps of four chunks, twice


def test_measures_are_logged_on_request(run, data):
    names = ("token-similarity", "layer-similarity", "alignment", "uniformity")
    what = recipe(steps=4, dev={"task": "stsb", "every": 4, "measures": names})
    trained = run(what, data=data)
    model, line = trained.model, trained.history[-1]
    rows = DevScore(what.dev, data).evaluator.rows
    picked = rows.pick(rows.splits["dev"])
    sentences = list(dict.fromkeys([*picked.left, *picked.right]))
    states = []
    for text in sentences:
        inputs = model.encoder.tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            output = model.encoder.model(**inputs).last_hidden_state
        states.append(token_similarity(output, inputs["attention_mask"]).item())
    views = torch.from_numpy(model.encoder.encode_layers(sentences, "cls"))
    alike = [number for number, score in enumerate(picked.labels) if score >= 0.8 * max(picked.labels)]
    sides = [
        model.encode([side[number] for number in alike], convert_to_tensor=True) for side in (picked.left, picked.right)
    ]
    assert line["eval_token_similarity"] == pytest.approx(sum(states) / len(states), rel=1e-4)
    assert line["eval_layer_similarity"] == pytest.approx(layer_similarity(views)[:, -1].mean().item(), rel=1e-4)
    assert line["eval_uniformity"] == pytest.approx(
        float(uniformity(model.encode(sentences, convert_to_tensor=True))), rel=1e-4
    )
    assert line["eval_alignment"] == pytest.approx(float(alignment(*sides)), rel=1e-4)


def test_facts_and_the_text_are_recorded(run, data, tmp_path):
    rows = DevScore(DevSettings(split="dev"), data).evaluator.rows
    seen = rows.pick(rows.splits["test"])
    corpus = Corpus.of([*seen.left, *seen.right, *said(20, 77)], source="test text and more")
    trained = run(recipe(steps=2), corpus, data=data, seed=5)
    facts = trained.model.training
    assert facts["seed"] == 5
    assert facts["steps"] == 2
    assert facts["text"] == {"source": "test text and more", "read": 60, "empty": 0, "duplicates": 0, "kept": 60}
    assert facts["text_equal_to_evaluation"] == {"stsb": 40}
    assert facts["recipe"]["objectives"][0]["name"] == "info-nce"
    trained.model.save(tmp_path / "model")
    for model in (trained.model, str(tmp_path / "model")):
        assert evaluate(model, ["stsb"], data=data).runs[0].results["stsb"].stamp["saw_test_text"] == 1.0
    assert LayerModel.load(tmp_path / "model").training == facts


@pytest.mark.parametrize(
    "model",
    one_in(
        2,
        [
            pytest.param({"pooler": "last @ mean"}, marks=pytest.mark.slow),  # as the two heads below
            {"pooler": "last @ cls", "head": "mlp", "keep_head": True},
            {"pooler": "first-last @ mean", "head": "linear", "width": 5, "keep_head": True},
            {"pooler": "last @ cls", "head": "mlp-bn"},
            {"pooler": "attention(cls, mean)", "inference": "last @ cls"},
            pytest.param({"pooler": "attention(cls, mean, last=cls)"}, marks=pytest.mark.slow),
            {"pooler": "last @ cls | last @ mean"},
        ],
    ),
)
def test_saved_and_loaded_again_it_gives_the_same_embeddings(run, tmp_path, model):
    trained = run(recipe(model=model, steps=2))
    expected = torch.from_numpy(trained.model.encode(SENTENCES))
    trained.model.save(tmp_path / "model")
    again = LayerModel.load(tmp_path / "model", device="cpu").encode(SENTENCES)
    plain = SentenceTransformer(str(tmp_path / "model"), device="cpu", trust_remote_code=True).encode(SENTENCES)
    for found in (again, plain):
        torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-5)
    if not model.get("keep_head") and not model.get("inference"):
        student = trained.student.eval()
        batch = batch_of(trained.student.encoder, Corpus.of(SENTENCES, source="x"), rows=len(SENTENCES))
        views = student.encoder.read(
            batch["input_ids"], batch["attention_mask"], student.pooler.layers, student.pooler.poolings
        )
        pooled = student.pooler.combine(views).detach()
        short = [row for row, number in enumerate(batch["rows"]) if len(SENTENCES[number].split()) < 12]
        torch.testing.assert_close(pooled[short], expected[batch["rows"][short]], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("what", "corpus", "said"),
    [
        (lambda: recipe(model={"dropout": 0.0}), texts, "has no dropout, so two passes over a sentence are equal"),
        (lambda: recipe(chunk=4, model={"head": "mlp-bn"}), texts, "batch norm needs the whole batch"),
        (lambda: recipe(chunk=4), lambda: recipe(term("mlm"), chunk=4), "gradient caching cannot be combined"),
        (recipe, lambda: Corpus.of([], source="nothing"), "nothing"),
        (recipe, lambda: Corpus.of(["one sentence"], source="one"), "one"),
        (lambda: recipe(data={"max_length": 99}), texts, "max_length is 99; .* takes at most 60 tokens"),
        (lambda: recipe(dev={"patience": 2}), texts, "patience needs dev pairs"),
        (lambda: recipe(dev={"task": "stsx"}), texts, "stsx"),
        (lambda: recipe(dev={"task": "mr"}), texts, "mr"),
        (lambda: recipe(model={"pooler": "9 @ cls"}), texts, "[Ll]ayer 9"),
        (
            lambda: recipe(model={"pooler": "views(1 @ cls; 2 @ mask in means)"}),
            texts,
            r"has several prompts \(the text alone, means\), but one pass is trained",
        ),
        (
            lambda: recipe(term("sg", dropout=True), model={"pooler": "last @ mask in means"}),
            texts,
            "the frozen copy would read the pooler's prompt",
        ),
        (lambda: recipe(data={"files": ("nowhere.txt",)}), lambda: None, "nowhere.txt: no such file"),
        (recipe, lambda: None, "no text to train on"),
    ],
)
def test_what_cannot_be_trained(folder, tmp_path, data, what, corpus, said):
    with pytest.raises(LayerwiseError, match=said):
        train_recipe(what(), tmp_path / "run", encoder=str(folder), corpus=corpus(), data=data)


def test_a_stream_needs_steps_and_a_dev_set_its_split(run, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(said(20)))
    with pytest.raises(InputError, match="give steps under"):
        run(recipe(steps=None), read_corpus(file, "text", stream=True))
    with pytest.raises(InputError, match="no rows of the split dev"):
        run(recipe(dev={"task": "stsb"}), data=str(save_dev(tmp_path / "data", splits=("train", "test"))))
    (tmp_path / "data" / "sts" / "stsb.parquet").rename(tmp_path / "data" / "sts" / "sts12.parquet")
    with pytest.raises(InputError, match="task 'sts12' has no 'dev' rows but test"):
        run(recipe(dev={"task": "sts12"}), data=str(tmp_path / "data"))
    file.write_text("")
    with pytest.raises(InputError, match=r"texts\.txt"):
        train_recipe(recipe(data={"files": (str(file),)}), tmp_path / "run", encoder="default")
