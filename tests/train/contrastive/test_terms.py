"""Every term of a training loss, built by its name on a tiny encoder, is its paper's formula on the same tensors."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from layerwise.errors import InputError, LayerwiseError, ModelError
from layerwise.objectives import cosines, list_mle, list_net, rank_consistency, vector_distance, whitened_contrast
from layerwise.train import TERMS, Recipe
from layerwise.train.contrastive.terms import LocalRows, Step, TermContext
from layerwise.train.contrastive.terms.tokens import first_token_is
from layerwise.train.loop.student import new_head
from support.graph_capture import CaptureCheck
from support.tiny import DEPTH, VOCABULARY, WIDTH
from support.training import encoder_of, save_masked_bert, term

ROWS = 4


@pytest.fixture(scope="module")
def masked_bert(tmp_path_factory):
    return save_masked_bert(tmp_path_factory.mktemp("masked") / "bert")


@pytest.fixture(scope="module")
def encoder(masked_bert):
    """Nobody changes its weights."""
    return encoder_of(masked_bert)


def context_for(encoder, *, width=WIDTH, in_features=0, pooling="cls"):
    return TermContext(encoder=encoder, width=width, pooling=pooling, in_features=in_features, seed=3)


def draw(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def tokens_of(columns):
    """Sentences of 3 to 6 words between special tokens, padded."""
    generator = torch.Generator().manual_seed(9)
    tokens = torch.randint(5, len(VOCABULARY), (columns, ROWS, 8), generator=generator)
    mask = torch.ones_like(tokens)
    tokens[:, :, 0], tokens[:, :, -1] = VOCABULARY["[CLS]"], VOCABULARY["[SEP]"]
    for row in range(1, ROWS):
        end = 8 - row
        tokens[:, row, end - 1], tokens[:, row, end:], mask[:, row, end:] = VOCABULARY["[SEP]"], 0, 0
    return tokens, mask


def step_of(columns=2, *, width=WIDTH, views=(), frozen=True, head=None):
    """A step made by hand; another seed for each tensor."""
    embeddings = draw(columns, ROWS, width, seed=1)
    return Step(
        embeddings=embeddings,
        views={view: draw(columns, ROWS, WIDTH, seed=10 + number) for number, view in enumerate(views)},
        local=LocalRows(embeddings, *tokens_of(columns)),
        head=head or nn.Identity(),
        frozen=draw(ROWS, DEPTH + 1, WIDTH, seed=2).detach() if frozen else None,
    )


def phi(one, other, temperature):
    return torch.exp(one @ other / (one.norm() * other.norm()) / temperature)


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def naive_info_nce(anchors, positives, negatives=(), *, t, weight=0.0):
    """Eq. 6 to 8 of LayerAttPooler; `weight` on the own hard negative's logit."""
    losses = []
    for i, anchor in enumerate(anchors):
        below = sum(phi(anchor, positive, t) for positive in positives)
        below = below + sum(phi(anchor, n, t) * (math.exp(weight) if i == j else 1) for j, n in enumerate(negatives))
        losses.append(-torch.log(phi(anchor, positives[i], t) / below))
    return mean(losses)


def naive_nt_xent(left, right, *, t):
    everything = [*left, *right]
    losses = []
    for m, anchor in enumerate(everything):
        partner = everything[(m + len(left)) % len(everything)]
        below = sum(phi(anchor, other, t) for n, other in enumerate(everything) if n != m)
        losses.append(-torch.log(phi(anchor, partner, t) / below))
    return mean(losses)


def naive_opt1(centres, views, *, t):
    losses = []
    for i, centre in enumerate(centres):
        below = sum(phi(centre, view, t) for view in views)
        below = below + sum(phi(centre, other, t) for j, other in enumerate(centres) if j != i)
        losses.append(-torch.log(phi(centre, views[i], t) / below))
    return mean(losses)


def naive_opt3(centres, views, *, t):
    losses = []
    for i, centre in enumerate(centres):
        others = sum(phi(centre, h, t) for m, layers in enumerate(views) if m != i for h in layers)
        losses.extend(-torch.log(phi(centre, own, t) / (phi(centre, own, t) + others)) for own in views[i])
    return mean(losses)


NAIVE_FORMS = {"base": naive_nt_xent, "opt1": naive_opt1, "opt2": naive_info_nce, "opt3": naive_opt3}


def naive_sscl(anchors, positives, negatives, *, t, own=False, weight=1.0, with_plain=True):
    """Eq. 4; `negatives` are each sentence's."""
    losses = []
    for i, anchor in enumerate(anchors):
        below = sum(phi(anchor, positive, t) for positive in positives)
        for j, layers in enumerate(negatives):
            if i == j or not own:
                below = below + weight * sum(phi(anchor, layer, t) for layer in layers)
        losses.append(-torch.log(phi(anchor, positives[i], t) / below))
    return (mean(losses) + naive_info_nce(anchors, positives, t=t)) / 2 if with_plain else mean(losses)


def same(value, formula, *inputs):
    assert value.shape == ()
    torch.testing.assert_close(value, formula, rtol=1e-4, atol=1e-6)
    for mine, theirs in zip(torch.autograd.grad(value, inputs), torch.autograd.grad(formula, inputs), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)


def test_every_name_is_tested_here():
    elsewhere = {"exits"}  # test_exits.py
    assert set(TERMS) - elsewhere == {
        "info-nce",
        "nt-xent",
        "sg",
        "sscl",
        "mlm",
        "diffcse",
        "ranking",
        "distil",
        "whitening",
    }


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("info-nce", {}),
        ("nt-xent", {}),
        ("ranking", {}),
        ("whitening", {"size": 5}),
        ("distil", {"teacher": "a teacher", "similarities": "list-mle"}),
        ("exits", {"layers": [1, 3], "widths": [0, 4]}),
        ("sscl", {"layers": [-2]}),
        ("sg", {}),
    ],
)
def test_no_term_waits_for_a_gpu(encoder, name, settings):
    """While a step waits, nothing is launched, and the GPU stands still: that took a quarter of a step."""
    built = term(name, **settings).build(replace(context_for(encoder), teacher_width=WIDTH))
    step = step_of(views=built.views)
    with CaptureCheck() as check:
        built(step).backward()
    assert check.refused == []
    assert step.embeddings.grad is not None or name == "exits"


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_info_nce(encoder, columns, weight):
    built = term("info-nce", temperature=0.2, hard_negative_weight=weight).build(context_for(encoder))
    step = step_of(columns)
    negatives = step.embeddings[2] if columns > 2 else ()
    formula = naive_info_nce(step.embeddings[0], step.embeddings[1], negatives, t=0.2, weight=weight)
    same(built(step), formula, step.embeddings)


def test_info_nce_in_both_directions(encoder):
    built, step = term("info-nce", temperature=0.2, symmetric=True).build(context_for(encoder)), step_of(2)
    left, right = step.embeddings
    there, back = naive_info_nce(left, right, t=0.2), naive_info_nce(right, left, t=0.2)
    same(built(step), (there + back) / 2, step.embeddings)


def test_nt_xent(encoder):
    built, step = term("nt-xent", temperature=0.2).build(context_for(encoder)), step_of(2)
    same(built(step), naive_nt_xent(*step.embeddings, t=0.2), step.embeddings)


def test_ranking(encoder):
    built, step = term("ranking", temperature=0.2).build(context_for(encoder)), step_of(2)
    same(built(step), rank_consistency(*step.embeddings, temperature=0.2), step.embeddings)


def test_whitening_draws_its_shuffles_anew_at_every_step(encoder):
    built, step = term("whitening", temperature=0.2, size=4, positives=3).build(context_for(encoder)), step_of(2)
    torch.manual_seed(3)
    orders = list(torch.rand(1, 4, WIDTH)[0].argsort(dim=-1))
    torch.manual_seed(3)
    formula = whitened_contrast(*step.embeddings, orders, size=4, temperature=0.2)
    same(built(step), formula, step.embeddings)
    assert built(step) != formula


@pytest.mark.parametrize("similarities", ["list-net", "list-mle", "none"])
@pytest.mark.parametrize("vectors", [0.0, 0.5])
@pytest.mark.parametrize("width", [WIDTH, WIDTH + 3])
def test_distil(encoder, similarities, vectors, width):
    if similarities == "none" and not vectors:
        with pytest.raises(InputError, match="nothing is learned of the teacher"):
            term("distil", teacher="x", similarities=similarities, vectors=vectors)
        return
    settings = term("distil", teacher="x", similarities=similarities, vectors=vectors, temperature=0.2)
    context = replace(context_for(encoder), teacher_width=width)
    built, step = settings.build(context), replace(step_of(1), frozen=draw(ROWS, 1, width, seed=5).detach())
    ours, theirs = step.embeddings[0], step.frozen[:, 0]
    both = cosines(ours, ours), cosines(theirs, theirs)
    formula = ours.sum() * 0
    if similarities == "list-net":
        formula = formula + list_net(*both, temperature=0.2, teacher_temperature=0.05)
    elif similarities == "list-mle":
        formula = formula + list_mle(*both, temperature=0.2)
    if vectors:
        begun = torch.nn.functional.pad(ours, (0, width - WIDTH))  # the map begins as the identity
        formula = formula + vectors * vector_distance(begun, theirs)
    same(built(step), formula, step.embeddings)
    with pytest.raises(InputError, match="no teacher"):
        term("distil", teacher="")


def test_distil_without_a_map_wants_embeddings_as_wide_as_the_teachers(encoder):
    settings = term("distil", teacher="x", similarities="none", projection="none")
    built = settings.build(replace(context_for(encoder), teacher_width=WIDTH))
    step = replace(step_of(1), frozen=draw(ROWS, 1, WIDTH, seed=5).detach())
    ours = torch.nn.functional.normalize(step.embeddings[0], dim=-1)  # their length is not the teacher's to say
    same(built(step), vector_distance(ours, step.frozen[:, 0]), step.embeddings)
    assert not list(built.parameters())
    with pytest.raises(InputError, match=f"the teacher's {WIDTH + 3}; give projection"):
        settings.build(replace(context_for(encoder), teacher_width=WIDTH + 3))


@pytest.mark.parametrize("form", ["base", "opt1", "opt2", "opt3"])
@pytest.mark.parametrize("sampler", ["uniform", "mean", "last"])
@pytest.mark.parametrize("hidden", [0, 24])
def test_self_guided(encoder, form, sampler, hidden):
    settings = term("sg", form=form, sampler=sampler, hidden=hidden, temperature=0.3)
    built, step = settings.build(context_for(encoder)), step_of(1)
    torch.manual_seed(4)
    drawn = torch.randint(DEPTH + 1, (ROWS,))
    views = {"uniform": step.frozen[torch.arange(ROWS), drawn], "mean": step.frozen.mean(1), "last": step.frozen[:, -1]}
    head = nn.Identity()
    if hidden:
        one, two = built.projection[0], built.projection[2]
        assert one.weight.std().item() == pytest.approx(0.02, rel=0.1)

        def head(x):
            return nn.functional.gelu(two(nn.functional.gelu(one(x))))

    positives = step.frozen if form == "opt3" else views[sampler]
    formula = NAIVE_FORMS[form](head(step.embeddings[0]), head(positives), t=0.3)
    torch.manual_seed(4)
    same(built(step), formula, step.embeddings)


def test_self_guided_draws_anew_at_every_step(encoder):
    built, step = term("sg", form="opt2", hidden=0).build(context_for(encoder)), step_of(1)
    assert len({built(step).item() for _ in range(8)}) > 1
    torch.manual_seed(1)
    first = built(step)
    torch.manual_seed(1)
    assert torch.equal(first, built(step))


def negatives_of(step, views, columns=2):
    """Each sentence's lower layers, of both passes."""
    return [[step.views[view][c][i] for view in views for c in range(columns)] for i in range(ROWS)]


@pytest.mark.parametrize("layers", [(-2,), (-2, -3), (1, 0, 3)])
@pytest.mark.parametrize("negatives", ["batch", "own"])
@pytest.mark.parametrize("with_plain", [True, False])
def test_self_contrastive(encoder, layers, negatives, with_plain):
    weight = 2.5
    settings = {"layers": layers, "negatives": negatives, "with_plain": with_plain, "negative_weight": weight}
    built = term("sscl", temperature=0.3, **settings).build(context_for(encoder))
    assert built.views == tuple(("cls", layer % (DEPTH + 1)) for layer in layers)
    step = step_of(2, views=built.views)
    options = {"t": 0.3, "own": negatives == "own", "weight": weight, "with_plain": with_plain}
    formula = naive_sscl(*step.embeddings, negatives_of(step, built.views), **options)
    same(built(step), formula, step.embeddings, *step.views.values())


@pytest.mark.parametrize("positives", ["self", "frozen"])
@pytest.mark.parametrize("passes", [1, 2])
def test_self_contrastive_with_other_positives(encoder, positives, passes):
    built = term("sscl", temperature=0.3, positives=positives, passes=passes).build(context_for(encoder))
    step = step_of(passes, views=built.views)
    torch.manual_seed(4)
    drawn = step.frozen[torch.arange(ROWS), torch.randint(DEPTH + 1, (ROWS,))]
    chosen = step.embeddings[0] if positives == "self" else drawn
    formula = naive_sscl(step.embeddings[0], chosen, negatives_of(step, built.views, passes), t=0.3)
    torch.manual_seed(4)
    same(built(step), formula, step.embeddings)


def test_self_contrastive_refuses_a_head_that_takes_no_layer(encoder):
    with pytest.raises(InputError, match="cannot be compared with the view of a layer"):
        term("sscl").build(context_for(encoder, width=7, in_features=2 * WIDTH))


def test_self_contrastive_through_batch_norm(encoder):
    head = new_head("mlp-bn", WIDTH, 7, seed=0)
    built = term("sscl", layers=(-2, -3)).build(context_for(encoder, width=7, in_features=WIDTH))
    step = step_of(2, width=7, views=built.views, head=head)
    assert built(step).isfinite()


def test_frozen_positives_go_through_the_head_too(encoder):
    head = new_head("mlp", WIDTH, 7, seed=0)
    context = context_for(encoder, width=7, in_features=WIDTH)
    built = term("sscl", temperature=0.3, positives="frozen", passes=2).build(context)
    step = step_of(2, width=7, views=built.views, head=head)
    frozen = torch.randn(step.embeddings.shape[1], 1, WIDTH, dtype=step.embeddings.dtype)  # one layer: nothing to draw
    step = replace(step, frozen=frozen)
    negatives = [[head(view) for view in views] for views in negatives_of(step, built.views)]
    formula = naive_sscl(step.embeddings[0], head(frozen[:, 0]), negatives, t=0.3)
    same(built(step), formula, step.embeddings)


def test_self_contrastive_through_the_head(encoder):
    head = new_head("mlp", WIDTH, 7, seed=0)
    context = context_for(encoder, width=7, in_features=WIDTH)
    built = term("sscl", temperature=0.3).build(context)
    step = step_of(2, width=7, views=built.views, head=head)
    negatives = [[head(view) for view in views] for views in negatives_of(step, built.views)]
    formula = naive_sscl(*step.embeddings, negatives, t=0.3)
    same(built(step), formula, step.embeddings, *step.views.values(), head.linear.weight)


def test_self_contrastive_of_the_last_layer_beside_any_pooler(encoder):
    context = context_for(encoder, width=2 * WIDTH, in_features=2 * WIDTH)
    built = term("sscl", temperature=0.3, anchors="last", pooling="mean").build(context)
    assert built.views == (("mean", DEPTH - 1), ("mean", DEPTH))
    step = step_of(2, width=2 * WIDTH, views=built.views)
    last = step.views["mean", DEPTH]
    formula = naive_sscl(last[0], last[1], negatives_of(step, built.views[:1]), t=0.3)
    same(built(step), formula, last, step.views["mean", DEPTH - 1])


def test_detached_layers_get_no_gradient(encoder):
    built = term("sscl", detach=True).build(context_for(encoder))
    step = step_of(2, views=built.views)
    built(step).backward()
    assert step.embeddings.grad.abs().sum() > 0
    assert all(view.grad is None for view in step.views.values())


def test_masked_language_modelling_is_the_encoders_own(masked_bert):
    encoder = encoder_of(masked_bert)
    built, step = term("mlm", share=0.5).build(context_for(encoder)), step_of(2)
    torch.manual_seed(6)
    value = built(step)
    torch.manual_seed(6)
    tokens, mask = step.local.tokens[0], step.local.mask[0]
    masked, labels = built.masker.masked(tokens, mask, 0.5)
    chosen = labels >= 0
    assert chosen.any()
    assert not chosen[mask == 0].any()
    assert not chosen[torch.isin(tokens, torch.tensor([2, 3]))].any()
    states = encoder.model(input_ids=masked, attention_mask=mask).last_hidden_state
    logits = built.heads["cls"](states)  # its output layer is the encoder's words
    assert built.heads["cls"].predictions.decoder.weight is encoder.model.embeddings.word_embeddings.weight
    likely = torch.log_softmax(logits[chosen], dim=-1)
    formula = -mean(likely[place, word] for place, word in enumerate(labels[chosen]))
    same(value, formula, encoder.model.embeddings.word_embeddings.weight)
    assert not any("encoder" in name for name in built.state_dict())


def test_diffcse_reads_the_embedding_in_its_first_tokens_place(masked_bert):
    encoder = encoder_of(masked_bert)
    built, step = term("diffcse", share=0.5).build(context_for(encoder)), step_of(2)
    first, seen, changed = built.discriminator.encoder.layer[0], [], []
    first.attention.register_forward_pre_hook(
        lambda _block, args, kwargs: seen.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True
    )
    built.discriminator.register_forward_pre_hook(
        lambda _model, _args, kwargs: changed.append(kwargs["input_ids"]), with_kwargs=True
    )
    torch.manual_seed(6)
    value = built(step)
    torch.testing.assert_close(seen[0][:, 0], step.embeddings.flatten(0, 1))
    assert not first._forward_pre_hooks
    tokens, mask = step.local.tokens.flatten(0, 1), step.local.mask.flatten(0, 1)
    special = torch.isin(tokens, torch.tensor([0, 1, 2, 3, 4])) | (mask == 0)
    replaced = changed[0] != tokens
    assert replaced.any()
    assert not replaced[special].any()
    with first_token_is(first, step.local.embeddings.flatten(0, 1)):
        states = built.discriminator(input_ids=changed[0], attention_mask=mask).last_hidden_state
    chance = torch.sigmoid(built.judge(states).squeeze(-1))
    formula = -mean(torch.log(p if r else 1 - p) for p, r in zip(chance[~special], replaced[~special], strict=True))
    same(value, formula, step.embeddings, built.judge.weight)


def test_the_generator_is_frozen_and_kept_out_of_checkpoints(masked_bert):
    encoder = encoder_of(masked_bert)
    built, step = term("diffcse").build(context_for(encoder)), step_of(2)
    generator = built._generator[0]
    before = {name: value.clone() for name, value in generator.state_dict().items()}
    built.train()
    assert not generator.training
    built(step).backward()
    assert all(weight.grad is None for weight in generator.parameters())
    assert all(weight.grad is None for weight in encoder.model.parameters())
    assert built.discriminator.encoder.layer[0].output.dense.weight.grad.abs().sum() > 0
    assert {name.split(".")[0] for name in built.state_dict()} == {"discriminator", "judge"}
    assert {id(one) for one in built.parameters()}.isdisjoint(map(id, generator.parameters()))
    assert all(torch.equal(value, before[name]) for name, value in generator.state_dict().items())


def test_hooks_are_gone_after_an_exception(masked_bert):
    built = term("diffcse").build(context_for(encoder_of(masked_bert)))
    first = built.discriminator.encoder.layer[0]
    with first_token_is(first, torch.zeros(1, WIDTH)):
        assert len(first._forward_pre_hooks) == 1
    broken = step_of(2)
    object.__setattr__(broken.local, "embeddings", torch.zeros(2, ROWS + 1, WIDTH))
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        built(broken)
    assert not first._forward_pre_hooks


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("sg", {"form": "opt4"}, "Unknown form 'opt4'. Did you mean 'opt3'\\? Known: base, opt1"),
        ("sg", {"sampler": "first"}, "Unknown sampler 'first'"),
        ("sg", {"pooling": "median"}, "median"),
        ("sg", {"layers": "sometimes"}, "sometimes"),
        ("sg", {"hidden": -1}, "0 or more"),
        ("sscl", {"layers": ()}, r"layers is \[\]; expected 1 or more values"),
        ("sscl", {"layers": (-2, -2)}, "must be different ones"),
        ("sscl", {"positives": "none"}, "Unknown positives 'none'"),
        ("sscl", {"negatives": "none"}, "Unknown negatives 'none'"),
        ("sscl", {"anchors": "none"}, "Unknown anchors 'none'"),
        ("sscl", {"pooling": "median"}, "median"),
        ("sscl", {"passes": 0}, "passes is 0; expected 1 or more"),
        ("whitening", {"size": 0}, "size is 0; expected 1 or more"),
        ("whitening", {"positives": 0}, "positives is 0; expected 1 or more"),
        ("mlm", {"share": 1.5}, "share is 1.5; expected a number below 1"),
        ("diffcse", {"share": 0.0}, "share is 0.0; expected a number above 0"),
        *(
            (name, {"temperature": 0.0}, "temperature is .*; expected a number above 0")
            for name in ("info-nce", "nt-xent", "sg", "sscl")
        ),
        *((name, {"weight": 0.0}, "weight is 0.0; expected a number above 0") for name in sorted(TERMS)),
    ],
)
def test_settings_that_cannot_be(name, settings, said):
    with pytest.raises(LayerwiseError, match=said):
        term(name, **settings)


@pytest.mark.parametrize(
    ("name", "settings", "place", "said"),
    [
        ("sscl", {"layers": (9,)}, {}, "[Ll]ayer 9"),
        ("sscl", {"layers": (-1,)}, {}, "layer 4 is the last one; negatives must lie below it"),
        ("sscl", {"layers": (4,)}, {}, "layer 4 is the last one"),
        ("sscl", {}, {"width": 64}, "cannot be compared with the view of a layer"),
        ("sg", {}, {"width": 64}, "layers of 32 numbers, but embeddings have 64"),
        ("diffcse", {}, {"width": 64}, "must have 32 numbers, not 64"),
        ("whitening", {"size": 33}, {}, "groups of 33 dimensions, but embeddings have 32"),
    ],
)
def test_terms_that_do_not_fit_their_place(encoder, name, settings, place, said):
    with pytest.raises(LayerwiseError, match=said):
        term(name, **settings).build(context_for(encoder, **place))


@pytest.mark.parametrize("name", ["mlm", "diffcse"])
def test_an_encoder_without_a_language_modelling_head(tiny_bert, name):
    with pytest.raises(ModelError, match="has no masked language modelling head"):
        term(name).build(context_for(encoder_of(tiny_bert)))


def test_another_generator(tiny_bert, masked_bert):
    built = term("diffcse", generator=str(masked_bert)).build(context_for(encoder_of(tiny_bert)))
    assert built(step_of(2)).isfinite()


def test_frozen_views_that_nobody_gave(encoder):
    built = term("sg").build(context_for(encoder))
    with pytest.raises(InputError, match="frozen copy's views are needed"):
        built(step_of(1, frozen=False))


def test_objectives_of_a_recipe_must_agree():
    with pytest.raises(InputError, match="different views of the frozen copy"):
        Recipe(name="x", objectives=(term("sg", pooling="max"), term("sscl", positives="frozen")))
