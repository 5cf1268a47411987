"""Tapped layers equal the model's own hidden states, for every architecture, and leave nothing behind."""

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from layerwise.encoder import POOLINGS, TappedLayers, UntappedLayers, block_lists, layer_reader
from support.slow_cases import one_in
from support.tiny import ARCHITECTURES, DEPTH, tiny_model

MASK = torch.tensor([[1] * 9, [1] * 5 + [0] * 4, [1] * 2 + [0] * 7])


def inputs_for(model) -> dict[str, Tensor]:
    torch.manual_seed(1)
    tokens = torch.randint(5, model.config.vocab_size, MASK.shape)
    return {"input_ids": tokens.masked_fill(MASK == 0, 0), "attention_mask": MASK}


def hooks_on(model: nn.Module) -> list[str]:
    """The hooks on a model but for transformers' own, which it leaves wherever hidden states were once asked for."""
    hooks = [hook for m in model.modules() for hook in (*m._forward_pre_hooks.values(), *m._forward_hooks.values())]
    return [hook.__qualname__ for hook in hooks if not hook.__module__.startswith("transformers")]


def reference(model, inputs) -> list[Tensor]:
    with torch.inference_mode():
        output = model(**inputs, output_hidden_states=True)
    return [*output.hidden_states[:-1], output.last_hidden_state]


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("pooling", one_in(3, POOLINGS))
def test_tapped_equals_hidden_states(name, pooling):
    model = tiny_model(name)
    inputs = inputs_for(model)
    expected = [POOLINGS[pooling](states, MASK) for states in reference(model, inputs)]
    reader = layer_reader(model)
    assert isinstance(reader, TappedLayers), "this architecture must be tapped, not kept"
    with torch.inference_mode():
        pooled = reader.read(inputs, range(DEPTH + 1), lambda states: POOLINGS[pooling](states, MASK))
    assert sorted(pooled) == list(range(DEPTH + 1))
    for layer, vectors in enumerate(expected):
        assert (pooled[layer] - vectors).abs().max() < 1e-5
    distinct = torch.stack([pooled[layer][0] for layer in range(pooling == "cls", DEPTH + 1)])
    assert (distinct[1:] - distinct[:-1]).abs().amax(1).min() > 1e-3, "layers must differ, or the test shows nothing"


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_stops_after_the_highest_wanted_layer(name):
    model = tiny_model(name)
    inputs = inputs_for(model)
    expected = reference(model, inputs)
    reader = layer_reader(model)
    ran = []
    blocks = next(block_lists(model, depth=DEPTH))
    handles = [block.register_forward_hook(lambda *_: ran.append(1)) for block in dict.fromkeys(blocks)]
    with torch.inference_mode():
        pooled = reader.read(inputs, {0, 2}, Tensor.clone)
    for handle in handles:
        handle.remove()
    assert len(ran) == 2, "only the blocks below layer 2 may run"
    assert sorted(pooled) == [0, 2]
    assert torch.allclose(pooled[2], expected[2], atol=1e-5)


def test_hooks_are_gone_after_success_and_after_errors():
    model = tiny_model("bert")
    reader = layer_reader(model)
    inputs = inputs_for(model)
    during = reader.read(inputs, {1}, lambda _: hooks_on(model))
    assert len(during[1]) == DEPTH, "the test must be able to see our hooks"
    assert hooks_on(model) == []

    def broken(_states):
        raise RuntimeError("pooling broke")

    with pytest.raises(RuntimeError, match="pooling broke"):
        reader.read(inputs, {1}, broken)
    with pytest.raises(KeyboardInterrupt):
        reader.read(inputs, {4}, lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(IndexError):
        reader.read(inputs | {"input_ids": torch.full_like(MASK, 10**6)}, {4}, Tensor.clone)
    assert hooks_on(model) == []


class Hidden(nn.Module):
    """A model whose blocks stand in a dictionary, so that no list of layers can be found."""

    def __init__(self, model) -> None:
        super().__init__()
        self.config = model.config
        self.embeddings = model.embeddings
        self.kept = nn.ModuleDict({str(i): block for i, block in enumerate(model.encoder.layer)})

    def forward(self, input_ids, attention_mask, output_hidden_states=False, return_dict=True):
        states = [self.embeddings(input_ids)]
        keep = (1.0 - attention_mask[:, None, None, :].float()) * -1e9
        for block in self.kept.values():
            result = block(states[-1], keep)
            states.append(result[0] if isinstance(result, tuple) else result)
        return BaseModelOutput(last_hidden_state=states[-1], hidden_states=tuple(states))


def test_an_unknown_architecture_falls_back_with_a_warning(caplog):
    model = Hidden(tiny_model("bert")).eval()
    inputs = inputs_for(model)
    with caplog.at_level(logging.WARNING):
        reader = layer_reader(model)
    assert isinstance(reader, UntappedLayers)
    assert "blocks could not be found" in caplog.text
    expected = reference(model, inputs)
    with torch.inference_mode():
        pooled = reader.read(inputs, [0, 3, 4], Tensor.clone)
    for layer, states in pooled.items():
        assert torch.equal(states, expected[layer])


def test_a_list_that_only_looks_like_the_blocks_is_not_believed(caplog):
    inner = tiny_model("bert")
    model = nn.Module()
    model.config = inner.config
    model.decoy = nn.ModuleList(nn.Linear(4, 4) for _ in range(DEPTH))
    model.forward = inner.forward  # whose own blocks are no modules of this one
    reader = layer_reader(model)
    assert isinstance(reader, UntappedLayers), "hooks that never fire must not be taken for layers"
    assert "blocks could not be found" in caplog.text


def test_layer_i_returning_the_constant_i_is_read_as_i():
    class Plus(nn.Module):
        def forward(self, hidden_states):
            return hidden_states + 1

    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = type("Config", (), {"vocab_size": 10})()
            self.weight = nn.Parameter(torch.zeros(1))
            self.blocks = nn.ModuleList(Plus() for _ in range(5))

        def forward(self, input_ids, attention_mask, output_hidden_states=False, return_dict=True):
            states = [torch.zeros(*input_ids.shape, 3)]
            for block in self.blocks:
                states.append(block(states[-1]))
            return BaseModelOutput(last_hidden_state=states[-1], hidden_states=tuple(states))

    model = Counter()
    reader = layer_reader(model)
    assert isinstance(reader, TappedLayers)
    inputs = {"input_ids": torch.ones(2, 3, dtype=torch.long), "attention_mask": torch.ones(2, 3)}
    assert {layer: v.item() for layer, v in reader.read(inputs, range(6), torch.mean).items()} == {
        i: float(i) for i in range(6)
    }


class Stack(nn.Module):
    """Three blocks that add 1, called as `call` says, behind a list of equal length that is none."""

    def __init__(self, call) -> None:
        super().__init__()
        self.config = type("Config", (), {"vocab_size": 10})()
        self.weight = nn.Parameter(torch.zeros(1))
        self.decoy = nn.ModuleList(nn.Identity() for _ in range(3))
        self.blocks = nn.ModuleList(nn.Identity() for _ in range(3))
        self.call = call

    def forward(self, input_ids, attention_mask, output_hidden_states=False, return_dict=True):
        states = [input_ids.unsqueeze(-1).float()]
        for block in self.blocks:
            states.append(self.call(block, states[-1]) + 1)
        return BaseModelOutput(last_hidden_state=states[-1], hidden_states=tuple(states))


def test_a_list_of_equal_length_does_not_hide_the_blocks():
    reader = layer_reader(Stack(lambda block, states: block(states)))
    assert isinstance(reader, TappedLayers)


def test_blocks_called_in_an_unknown_way_are_not_tapped(caplog):
    reader = layer_reader(Stack(lambda block, states: block(input=states)))
    assert isinstance(reader, UntappedLayers)
    assert "blocks could not be found" in caplog.text


def test_two_threads_may_read_one_model():
    model = tiny_model("bert")
    reader = layer_reader(model)
    inputs = inputs_for(model)
    other = {"input_ids": inputs["input_ids"][:2, :5] + 1, "attention_mask": MASK[:2, :5]}

    def read(which) -> list[Tensor]:
        with torch.inference_mode():
            pooled = reader.read(which, range(DEPTH + 1), lambda states: states.mean(1))
        return [pooled[layer] for layer in range(DEPTH + 1)]

    expected = {0: read(inputs), 1: read(other)}
    with ThreadPoolExecutor(max_workers=2) as threads:
        found = list(threads.map(lambda turn: read((inputs, other)[turn % 2]), range(60)))
    for turn, layers in enumerate(found):
        for layer, vectors in enumerate(layers):
            assert torch.allclose(vectors, expected[turn % 2][layer], atol=1e-6), (turn, layer)


def test_a_pass_may_meet_a_hook_that_is_registered_by_half():
    """torch adds a hook first, and then that it takes kwargs: another thread may come in between."""
    model = tiny_model("bert")
    reader = layer_reader(model)
    inputs = inputs_for(model)
    expected = model(**inputs).last_hidden_state
    met = []

    def pool(states: Tensor) -> Tensor:
        marks = [block._forward_pre_hooks_with_kwargs for block in reader.blocks]
        kept = [dict(mark) for mark in marks]
        for mark in marks:
            mark.clear()
        with ThreadPoolExecutor(max_workers=1) as other:
            met.append(other.submit(lambda: model(**inputs).last_hidden_state).result())
        for mark, known in zip(marks, kept, strict=True):
            mark.update(known)
        return states.mean(1)

    pooled = reader.read(inputs, [0, DEPTH], pool)
    assert len(pooled) == 2
    assert torch.allclose(met[0], expected, atol=1e-6)
