"""Prompts: how they print and parse, which tokens they pool, what is cut, and what is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layerwise.encoder import (
    LayerEncoder,
    Pooled,
    Prompt,
    PromptTokenizer,
    by_prompt,
    parse_pooling,
    prompt_library,
    prompts_for,
    read_prompts,
)
from layerwise.encoder.pooling import pooled_mask
from layerwise.errors import InputError
from support.graph_capture import CaptureCheck
from support.tiny import DEPTH, SENTENCES, decoder_tokenizer, save_decoder, tiny_tokenizer

MASK = tiny_tokenizer().mask_token_id


@pytest.fixture(scope="module")
def bert(tiny_bert):
    return LayerEncoder(tiny_bert, device="cpu")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return LayerEncoder(save_decoder("llama", tmp_path_factory.mktemp("decoder") / "llama"), device="cpu")


def states_of(encoder, text, **options):
    tokens = encoder.tokenizer(text, return_offsets_mapping=True, **options)
    with torch.inference_mode():
        output = encoder.model(torch.tensor([tokens["input_ids"]]), output_hidden_states=True)
    states = torch.stack([*output.hidden_states[:-1], output.last_hidden_state])[:, 0].numpy()
    return states, tokens["offset_mapping"], tokens["input_ids"]


def test_the_library_has_prompts_for_each_kind_of_model():
    decoders, masked = prompts_for(decoder_tokenizer()), prompts_for(tiny_tokenizer())
    chat = [prompt for prompt in decoders if prompt.is_chat]
    assert len(decoders) - len(chat) >= 16
    assert len(chat) >= 4
    assert len(masked) >= 8
    assert all(prompt.has_mask for prompt in masked)
    no_chat = decoder_tokenizer()
    no_chat.chat_template = None
    assert prompts_for(no_chat) == [prompt for prompt in decoders if not prompt.is_chat]
    assert len(set(prompt_library().values())) == len(prompt_library())


def test_a_prompt_knows_its_pooling():
    assert Prompt("{text}").is_plain
    assert Prompt('"{text}" means [MASK].') == Prompt('"{text}" means {mask}.')
    assert [Prompt(t).pooling for t in ("{text}", "{text} {text}", "Say {text}:", "{text} {mask}")] == [
        "mean", "mean", "last", "mask",
    ]  # fmt: skip
    assert Prompt("{text} {text}").over == "second"


@pytest.mark.parametrize("name", prompt_library())
def test_names_and_templates_are_the_same_prompt(name):
    prompt = prompt_library()[name]
    named, written = parse_pooling(f"mean in {name}"), parse_pooling(f"mean in {prompt.full}")
    assert named == written == Pooled("mean", prompt)
    assert str(written) == f"mean in {name}"
    assert parse_pooling(written.full) == written


@given(
    before=st.text(max_size=20).filter(lambda text: "{" not in text and "[" not in text),
    after=st.text(max_size=20).filter(lambda text: "{" not in text and "[" not in text),
    over=st.sampled_from(["all", "text"]),
    pooling=st.sampled_from(["mean", "last", "weighted-mean"]),
)
def test_what_is_printed_is_read_again(before, after, over, pooling):
    view = Pooled(pooling, Prompt(f"{before}{{text}}{after}", over))
    assert parse_pooling(str(view)) == view
    assert parse_pooling(view.full) == view


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mean in eoll", "Unknown prompt 'eoll'. Did you mean 'eol'"),
        ("maen in eol", "Unknown token pooling 'maen'. Did you mean 'mean'"),
        ("mask", "needs a prompt with {mask}"),
        ("mask in eol", "needs a prompt with {mask}"),
        ('mean in "no place"', "has 0 places for the text; write {text} once or twice"),
        ('mean in "{text} {text} {text}"', "has 3 places"),
        ('mean in "{text} {mask} [MASK]"', "has 2 masks; write {mask} once at most"),
        ('mean in "{text}" over second', "no second to pool"),
        ('mean in "{text}" over tokens', "Unknown span of a prompt 'tokens'"),
        ('mean in "{text}', "is no token pooling"),
        ("", "is no token pooling"),
    ],
)
def test_what_is_no_pooling_is_refused(text, message):
    with pytest.raises(InputError) as error:
        parse_pooling(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_passes_are_by_prompt():
    groups = by_prompt(["mean", "last in eol", "cls", "mean in eol", "mean in twice"])
    assert list(groups.values()) == [["mean", "cls"], ["last in eol", "mean in eol"], ["mean in twice"]]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_last_token_of_a_prompt(llama, sentence):
    states, _, _ = states_of(llama, f'This sentence : "{sentence}" means in one word:"')
    views = llama.encode_layers([sentence, *SENTENCES], ["last in eol", "mean in eol"])
    assert np.allclose(views["last in eol"][0], states[:, -1], atol=1e-5)
    assert np.allclose(views["mean in eol"][0], states.mean(1), atol=1e-5)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_second_text_of_an_echo(llama, sentence):
    template = "Rewrite the sentence: {text} The rewritten sentence: {text}"
    states, offsets, _ = states_of(llama, template.replace("{text}", sentence))
    begins = template.replace("{text}", sentence).rindex(sentence)
    inside = [first >= begins for first, _ in offsets]
    views = llama.encode_layers([*SENTENCES, sentence], ["mean in echo", "last in echo", "cls in echo"])
    assert np.allclose(views["mean in echo"][-1], states[:, inside].mean(1), atol=1e-5)
    assert np.allclose(views["last in echo"][-1], states[:, -1], atol=1e-5)
    assert np.allclose(views["cls in echo"][-1], states[:, inside.index(True)], atol=1e-5)


@pytest.mark.parametrize("sentence", [*SENTENCES, "a [MASK] in the text"])
def test_the_mask_is_that_of_the_prompt(bert, sentence):
    states, _, ids = states_of(bert, f"The river [MASK] {sentence}")
    place = ids.index(MASK)
    view = bert.encode_layers([*SENTENCES, sentence], 'mask in "The river {mask} {text}"')
    assert np.allclose(view[-1], states[:, place], atol=1e-5)
    states, _, ids = states_of(bert, f"{sentence} [MASK]")
    place = len(ids) - 1 - ids[::-1].index(MASK)
    assert np.allclose(bert.encode_layers([sentence], "mask in mask-last")[0], states[:, place], atol=1e-5)


def test_the_text_alone_is_pooled_where_asked_for(bert):
    states, offsets, _ = states_of(bert, "The river: an old clock.")
    inside = [first >= 11 and last <= 23 and last > first for first, last in offsets]
    view = bert.encode_layers(["an old clock"], 'mean in "The river: {text}." over text')
    assert np.allclose(view[0], states[:, inside].mean(1), atol=1e-5)


def test_chat_prompts_use_the_models_template(llama):
    sentence = SENTENCES[0]
    words = f"<user> Who {sentence} <assistant> the"
    states, _, _ = states_of(llama, words, add_special_tokens=False)
    view = llama.encode_layers([sentence], 'last in "Who {text}{answer}the"')
    assert np.allclose(view[0], states[:, -1], atol=1e-5)


def test_the_text_is_cut_and_never_the_prompt(bert):
    long = " ".join(["the old river"] * 40)
    prompt = Prompt("Prices fell, {text} and nobody was surprised by {mask}.")
    tokens = PromptTokenizer(bert.tokenizer, prompt, max_length=30, model="tiny")([long, "rain", long])
    assert tokens.truncated == 2
    assert max(map(len, tokens.ids)) == 30
    ending = bert.tokenizer("and nobody was surprised by [MASK].")["input_ids"][1:]
    for ids, (_, _, place) in zip(tokens.ids, tokens.places, strict=True):
        assert ids[-len(ending) :] == ending
        assert ids[place] == MASK
    twice = PromptTokenizer(bert.tokenizer, Prompt("{text} . {text}"), max_length=30, model="tiny")([long])
    assert 28 <= len(twice.ids[0]) <= 30
    (first, end, _), *_ = twice.places
    assert end - first == 13


def test_prompts_that_a_model_cannot_take_are_refused(bert, llama):
    for encoder, pooling, message in (
        (llama, "mask in means", "has no mask token"),
        (bert, "last in chat-word", "has no chat template"),
        (bert, f'mean in "{"old river " * 40}{{text}}"', "so no text fits in it"),
        (bert, 'mean in "river {text} clock" over text', "has no token in the prompt"),
    ):
        with pytest.raises(InputError) as error:
            encoder.encode_layers(["  "], pooling)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


def test_prompts_are_read_by_torch_where_onnx_reads_the_rest(tiny_bert, bert):
    encoder = LayerEncoder(tiny_bert, device="cpu", backend="onnx")
    poolings = ["mean", "mean in twice"]
    found, expected = (one.encode_layers(SENTENCES, poolings) for one in (encoder, bert))
    for pooling in poolings:
        np.testing.assert_allclose(found[pooling], expected[pooling], atol=1e-5)


def test_views_of_prompts_are_cached_by_their_template(bert):
    poolings = ["mask in means", 'mean in "the {text}"', "mean"]
    first = bert.encode_layers(SENTENCES, poolings, cache=True)
    again = bert.encode_layers(SENTENCES, poolings, cache=True)
    for pooling in poolings:
        assert first[pooling].shape == (len(SENTENCES), DEPTH + 1, bert.width)
        assert np.array_equal(first[pooling], again[pooling])
    assert not np.allclose(first["mean"], first['mean in "the {text}"'])


def test_files_of_prompts(tmp_path):
    lines = tmp_path / "prompts.txt"
    lines.write_text('Say "{text}":\n\n{text} is {mask}\n')
    assert list(read_prompts(lines).values()) == [Prompt('Say "{text}":'), Prompt("{text} is {mask}")]
    tables = tmp_path / "prompts.toml"
    tables.write_text(
        '[[prompt]]\nname = "mine"\ntemplate = "On {text}:"\nover = "text"\n[[prompt]]\ntemplate = "{text}!"'
    )
    assert read_prompts(tables) == {"mine": Prompt("On {text}:", "text"), "prompt-2": Prompt("{text}!")}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.txt", "{text}\nno place\n", r"p\.txt:2: The prompt 'no place' has 0 places"),
        ("p.txt", "\n", r"p\.txt: holds no prompts"),
        ("p.toml", "prompt = 3", r"p\.toml: prompt 1: expected the keys template"),
        ("p.toml", "[[prompt]]\nname = 'a'", r"prompt 1: no template"),
        ("p.toml", "[[prompt]]\ntemplate = '{text}'\nword = 1", r"prompt 1: expected the keys"),
        ("p.toml", "[[prompt]]\nname = 'a b'\ntemplate = '{text}'", r"prompt 1: the name 'a b'"),
        ("p.toml", "[[prompt]", r"p\.toml: is no TOML"),
        ("p.toml", "", r"holds no prompts"),
        ("p.jsonl", '{"a": "{text}"}', r"p\.jsonl: prompts come from a file \*\.toml or \*\.txt"),
    ],
)
def test_files_that_hold_no_prompts_are_refused(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_prompts(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_prompts(tmp_path / "none.txt")


@pytest.mark.parametrize("pooling", ["mask", "mean"])
def test_pooling_in_a_prompt_copies_nothing_to_the_device(pooling):
    mask, places = torch.ones(2, 5, dtype=torch.long), torch.tensor([[1, 4, 2], [2, 5, 3]])
    with CaptureCheck() as check:
        pooled = pooled_mask(pooling, mask, places)
    expected = [[0, 0, 1, 0, 0], [0, 0, 0, 1, 0]] if pooling == "mask" else [[0, 1, 1, 1, 0], [0, 0, 1, 1, 1]]
    assert pooled.tolist() == expected
    assert not check.refused, "no CUDA graph can hold such a copy"
    with CaptureCheck() as check:
        places[:, [0]]
    assert check.refused, "lists of numbers are seen"
