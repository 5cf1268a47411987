"""Template denoising and two prompts as two views, against references that are written out."""

import pytest
import torch

from layerwise.encoder import Prompt
from layerwise.errors import InputError
from layerwise.model import LayerModel
from layerwise.objectives import info_nce
from layerwise.train.contrastive.batches import Batches
from layerwise.train.contrastive.denoising import Denoiser
from layerwise.train.contrastive.prompted import TwoPrompts, prompt_tokenizer
from layerwise.train.contrastive.student import build_student
from layerwise.train.loop.grad_cache import cached_backward
from support.graph_capture import CaptureCheck
from support.slow_cases import one_in
from support.tiny import SENTENCES, save_decoder
from support.training import encoder_of, losses, recipe, save_masked_bert, term, texts, trainings

MEANS, RIVER = Prompt('This sentence : "{text}" means {mask}.'), 'the old river {mask} , "{text}" ?'
POOLER = "last @ mask in means"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_masked_bert(tmp_path_factory.mktemp("masked") / "bert")


def student_of(folder, *terms, second="", pooler=POOLER, dropout=0.0):
    model = {"pooler": pooler, "denoise": True, "dropout": dropout, "second_prompt": second}
    return build_student(recipe(*terms, model=model, columns=1 if second else 2), encoder_of(folder), seed=0)


def batch_of(encoder, second="", rows=6, repetition=0.0, bucket=True):
    prompts = [MEANS, Prompt(second)] if second else [MEANS]
    tokenizers = [prompt_tokenizer(encoder, prompt, max_length=16) for prompt in prompts]
    tokenizer = TwoPrompts(*tokenizers) if second else tokenizers[0]
    batches = Batches(
        texts(rows), tokenizer, batch_size=rows, copies=1 if second or repetition else 2, pad_id=0, seed=0,
        repetition=repetition, bucket=bucket,
    )  # fmt: skip
    return next(iter(batches))


def of_mask(encoder, ids, positions):
    """The last layer's state of the mask, by the model itself."""
    states = encoder.model(torch.tensor([ids]), position_ids=torch.tensor([positions])).last_hidden_state[0]
    return states[ids.index(encoder.tokenizer.mask_token_id)]


def denoised(encoder, template, text, first=0):
    """The mask's state of the filled template, less that of its tokens alone at the positions that they have there."""
    before, after = template.replace("{mask}", encoder.tokenizer.mask_token).split("{text}")
    parts = [encoder.tokenizer(part, add_special_tokens=False)["input_ids"] for part in (before, text, after)]
    start, end = encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id
    ids = [start, *parts[0], *parts[1], *parts[2], end]
    assert ids == encoder.tokenizer(before + text + after)["input_ids"]
    inside = range(1 + len(parts[0]), 1 + len(parts[0]) + len(parts[1]))
    outside = [place for place in range(len(ids)) if place not in inside]
    whole = of_mask(encoder, ids, [first + place for place in range(len(ids))])
    return whole - of_mask(encoder, [ids[place] for place in outside], [first + place for place in outside])


@pytest.mark.parametrize("second", ["", RIVER])
@pytest.mark.parametrize(("architecture", "first"), one_in(3, [("bert", 0), ("roberta", 1), ("modernbert", 0)]))
def test_the_templates_own_states_are_taken_away(tiny_folders, architecture, first, second):
    student = student_of(tiny_folders[architecture], second=second)
    encoder, batch = student.encoder, batch_of(student.encoder, second)
    (encoder_pass,) = student.passes(batch)
    assert encoder_pass.places.shape[1] == (4 if second else 3)
    found = student.encode(*encoder_pass.inputs)["embeddings"]
    corpus = texts(6).columns[0]
    for column, template in enumerate((MEANS.template, second or MEANS.template)):
        for place, row in enumerate(batch["rows"]):
            expected = denoised(encoder, template, corpus[row], first)
            torch.testing.assert_close(found[6 * column + place], expected, rtol=1e-3, atol=1e-4)


def test_gradients_flow_through_the_template(folder):
    student = student_of(folder, second=RIVER).double()  # float32 rounds gradients by 1e-5
    batch, corpus = batch_of(student.encoder, RIVER), texts(6).columns[0]
    student(batch)["loss"].backward()
    found = {name: weight.grad.clone() for name, weight in student.named_parameters() if weight.grad is not None}
    student.zero_grad()
    columns = [
        torch.stack([denoised(student.encoder, template, corpus[row]) for row in batch["rows"]])
        for template in (MEANS.template, RIVER)
    ]
    info_nce(*columns).backward()
    for name, weight in student.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(found[name], weight.grad, rtol=1e-7, atol=1e-10)
    without = recipe(model={"pooler": POOLER, "dropout": 0.0}, columns=2)
    plain = build_student(without, encoder_of(folder), seed=0).double()
    plain(batch_of(plain.encoder))["loss"].backward()
    assert not torch.allclose(
        plain.backbone.embeddings.word_embeddings.weight.grad, found["backbone.embeddings.word_embeddings.weight"]
    )


def test_one_row_for_each_length_goes_with_the_texts(folder):
    student, shapes = student_of(folder, second=RIVER), []
    handle = student.backbone.embeddings.register_forward_pre_hook(
        lambda _, __, inputs: shapes.append(tuple(inputs["input_ids"].shape)), with_kwargs=True
    )
    batch = batch_of(student.encoder, RIVER, rows=32)
    mask, places = batch["attention_mask"], batch["places"]
    templates = student.denoiser.templates_of(mask, places)
    expected = student(batch)["loss"]
    found = student({**batch, "templates": templates})["loss"]
    handle.remove()
    torch.testing.assert_close(found, expected)
    lengths = {(int(prompt), int(length)) for prompt, length in zip(places[:, 3], mask.sum(1), strict=True)}
    assert len(set(templates[templates >= 0].tolist())) == (templates >= 0).sum() == len(lengths)
    assert len(templates) == 4 * -(-len(lengths) // 4)
    assert shapes[-1] == (64 + len(templates), mask.shape[1])
    assert len(shapes) == 2
    assert shapes[0][0] > shapes[1][0]  # without them, those of all lengths


def test_a_training_takes_the_templates_of_each_batch(folder, tmp_path):
    rows = []
    with pytest.MonkeyPatch.context() as patch:
        read = Denoiser.read
        patch.setattr(Denoiser, "read", lambda *inputs: (rows.append(inputs[7]), read(*inputs))[1])
        model = {"pooler": POOLER, "denoise": True, "dropout": 0.02}
        trainings(folder, tmp_path)(recipe(model=model, steps=2), texts(8))
    assert len(rows) == 2
    assert all(templates is not None and len(templates) % 4 == 0 for templates in rows)


def test_repeated_words_stand_in_the_second_prompt_too(folder):
    encoder = encoder_of(folder)
    batch, again = (batch_of(encoder, RIVER, repetition=0.9) for _ in range(2))
    assert torch.equal(batch["input_ids"], again["input_ids"])
    river = encoder.tokenizer("the old river [MASK]")["input_ids"][:-1]
    assert batch["input_ids"][6:, : len(river)].tolist() == [river] * 6
    assert batch["places"][:, 3].tolist() == [0] * 6 + [1] * 6
    own = [len(prompt_tokenizer(encoder, prompt, max_length=16).template().ids) for prompt in (MEANS, Prompt(RIVER))]
    lengths = batch["attention_mask"].sum(1).view(2, -1) - torch.tensor(own).unsqueeze(1)
    assert (lengths[1] >= lengths[0]).all()
    assert (lengths[1] > lengths[0]).any()


def test_without_denoising_each_view_is_that_of_its_prompt(folder):
    model = {"pooler": POOLER, "dropout": 0.0, "second_prompt": RIVER}
    student = build_student(recipe(model=model), encoder_of(folder), seed=0)
    batch, corpus = batch_of(student.encoder, RIVER), texts(6).columns[0]
    (encoder_pass,) = student.passes(batch)
    found = student.encode(*encoder_pass.inputs)["embeddings"].detach()
    for column, pooler in enumerate((POOLER, f'last @ mask in "{RIVER}"'.replace('"{text}"', '\\"{text}\\"'))):
        expected = LayerModel(student.encoder, pooler).encode([corpus[row] for row in batch["rows"]])
        torch.testing.assert_close(found[6 * column :][:6], torch.from_numpy(expected), rtol=1e-3, atol=1e-4)


def test_gradient_caching_knows_each_rows_prompt(folder):
    student = student_of(folder, second=RIVER)
    batch = batch_of(student.encoder, RIVER)
    student(batch)["loss"].backward()
    expected = {name: weight.grad.clone() for name, weight in student.named_parameters() if weight.grad is not None}
    student.zero_grad()
    cached_backward(student, batch, chunk=5)
    for name, weight in student.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(weight.grad, expected[name], rtol=1e-3, atol=1e-5)


def test_the_queue_is_denoised_as_the_student_is(folder):
    student = student_of(folder, term("info-nce", queue=6, momentum=0.0), second=RIVER).train()
    batch = batch_of(student.encoder, RIVER)
    student(batch)
    (encoder_pass,) = student.eval().passes(batch)
    expected = student.run_pass(encoder_pass)["embeddings"][:6].detach()
    torch.testing.assert_close(student.terms["info-nce"].queue.vectors, expected)


@pytest.mark.parametrize("pooler", [POOLER, "attention(mask in means, mean in means, last=mask in means)"])
def test_a_denoised_pass_can_be_recorded_as_a_cuda_graph(folder, monkeypatch, pooler):
    student = student_of(
        folder, term("info-nce"), term("sscl", anchors="last"), second=RIVER, pooler=pooler, dropout=0.1
    )
    batch = batch_of(student.encoder, RIVER)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with CaptureCheck() as check:
        encoded = student.train().run_pass(student.passes(batch)[0])
        sum(tensor.square().sum() for tensor in encoded.values()).backward()
    assert check.refused == []


@pytest.mark.slow
def test_it_learns_and_is_saved_without_denoising(folder, tmp_path):
    run = trainings(folder, tmp_path)
    model = {"pooler": POOLER, "denoise": True, "second_prompt": RIVER, "dropout": 0.02}
    trained = run(recipe(model=model, steps=16, learning_rate=1e-3), texts(8))
    found = losses(trained)
    assert sum(found[-3:]) < 0.97 * sum(found[:3]), found
    assert trained.facts["recipe"]["model"]["denoise"] is True
    trained.model.save(tmp_path / "saved")
    again = LayerModel.load(tmp_path / "saved", device="cpu")
    expected = LayerModel(trained.student.encoder, POOLER).encode(SENTENCES)
    for one in (trained.model, again):
        torch.testing.assert_close(
            torch.from_numpy(one.encode(SENTENCES)), torch.from_numpy(expected), rtol=1e-4, atol=1e-5
        )
    assert not any(name.startswith("denoiser") for name in trained.student.state_dict())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"pooler": "last @ mean", "denoise": True}, "denoise takes away what the prompt alone gives"),
        ({"pooler": 'last @ mean in "the {text} ." over text', "denoise": True}, "pools the text; take a pooler"),
        ({"pooler": "last @ mean", "second_prompt": "means"}, "second_prompt needs a pooler in a prompt"),
        ({"pooler": POOLER, "second_prompt": "means"}, "second_prompt means is the pooler's own"),
        ({"pooler": POOLER, "second_prompt": "meens"}, "Unknown prompt 'meens'. Did you mean 'means'"),
        ({"pooler": POOLER, "second_prompt": "The {text}"}, "needs a prompt with {mask}"),
        ({"pooler": POOLER, "second_prompt": "{mask}"}, "has 0 places for the text"),
    ],
)
def test_what_cannot_be_denoised_or_seen_in_two_prompts(folder, model, message):
    with pytest.raises(InputError) as error:
        build_student(recipe(model=model), encoder_of(folder), seed=0)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_second_prompt_is_of_one_column():
    with pytest.raises(InputError, match="second_prompt is of the second view of a sentence"):
        recipe(columns=2, model={"pooler": POOLER, "second_prompt": "describes"})


def test_a_model_without_positions_is_refused(tmp_path):
    model = {"pooler": "last @ last in eol", "denoise": True, "dropout": 0.1}
    with pytest.raises(InputError, match="does not take the positions of tokens; leave denoise out"):
        build_student(recipe(model=model), encoder_of(save_decoder("t5", tmp_path / "t5")), seed=0)
    student = build_student(recipe(model=model), encoder_of(save_decoder("llama", tmp_path / "llama")), seed=0)
    assert student.denoiser is not None
