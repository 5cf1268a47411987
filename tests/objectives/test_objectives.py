"""Every objective equals its paper's formula, written out here with plain loops, in value and in gradient."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise import objectives
from layerwise.errors import InputError, LayerwiseError
from layerwise.objectives import (
    add_pull_to_start,
    cosines,
    info_nce,
    mask_tokens,
    masked_language_loss,
    nt_xent,
    replaced_token_loss,
    self_contrastive,
    self_guided,
    squared_distance,
)

FORMS = ["base", "opt1", "opt2", "opt3"]
sizes = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10_000))
temperatures = st.sampled_from([0.05, 0.3, 1.0, 7.0])


def draw(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def phi(one, other, temperature):
    return torch.exp(one @ other / (one.norm() * other.norm()) / temperature)


def mean(losses):
    losses = list(losses)
    return sum(losses) / len(losses)


def same(function, formula, *inputs, rtol=1e-9):
    """Both give the same number, and the same gradient to every input."""
    ours, naive = function(*inputs), formula(*inputs)
    assert ours.shape == ()
    torch.testing.assert_close(ours, naive, rtol=rtol, atol=1e-11)
    for mine, theirs in zip(torch.autograd.grad(ours, inputs), torch.autograd.grad(naive, inputs), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=rtol, atol=1e-9)


def naive_info_nce(anchors, positives, negatives=None, *, temperature, weight=0.0, left_out=()):
    """LayerAttPooler eq. 6 and 8, in SimCSE's code with a weight on the own hard negative's logit."""
    losses = []
    for i, anchor in enumerate(anchors):
        below = sum(
            phi(anchor, positive, temperature) for j, positive in enumerate(positives) if (i, j) not in left_out
        )
        for j, negative in enumerate([] if negatives is None else negatives):
            below = below + phi(anchor, negative, temperature) * (math.exp(weight) if i == j else 1)
        losses.append(-torch.log(phi(anchor, positives[i], temperature) / below))
    return mean(losses)


def naive_base(centres, views, *, temperature):
    """SG-BERT section 3.1."""
    everything = [*centres, *views]
    losses = []
    for m, anchor in enumerate(everything):
        partner = everything[(m + len(centres)) % len(everything)]
        z = sum(phi(anchor, other, temperature) for n, other in enumerate(everything) if n != m)
        losses.append(-torch.log(phi(anchor, partner, temperature) / z))
    return mean(losses)


def naive_opt1(centres, views, *, temperature):
    losses = []
    for i, centre in enumerate(centres):
        z = sum(phi(centre, view, temperature) for view in views)
        z = z + sum(phi(centre, other, temperature) for j, other in enumerate(centres) if j != i)
        losses.append(-torch.log(phi(centre, views[i], temperature) / z))
    return mean(losses)


def naive_opt3(centres, views, *, temperature):
    losses = []
    for i, centre in enumerate(centres):
        for view in views[i]:
            own = phi(centre, view, temperature)
            others = sum(phi(centre, h, temperature) for m, layers in enumerate(views) if m != i for h in layers)
            losses.append(-torch.log(own / (own + others)))
    return mean(losses)


NAIVE_FORMS = {"base": naive_base, "opt1": naive_opt1, "opt2": naive_info_nce, "opt3": naive_opt3}


def naive_self_contrastive(anchors, positives, negatives, *, temperature, own_only, weight, with_plain):
    """SSCL eq. 4 as the arguments read it."""
    losses = []
    for i, anchor in enumerate(anchors):
        below = sum(phi(anchor, positive, temperature) for positive in positives)
        for j, layers in enumerate(negatives):
            if i == j or not own_only:
                below = below + weight * sum(phi(anchor, layer, temperature) for layer in layers)
        losses.append(-torch.log(phi(anchor, positives[i], temperature) / below))
    loss = mean(losses)
    return (loss + naive_info_nce(anchors, positives, temperature=temperature)) / 2 if with_plain else loss


def of_form(form, seed=0):
    return draw(5, 4, seed=seed), draw(5, 3, 4, seed=seed + 1) if form == "opt3" else draw(5, 4, seed=seed + 1)


# What all of them share: (function of (n, d) tensors or stacks of them, their inputs)
ALL = {
    "info_nce": lambda t: (partial(info_nce, temperature=t), (draw(5, 4), draw(5, 4, seed=1), draw(5, 4, seed=2))),
    "info_nce, weighted": lambda t: (
        partial(info_nce, temperature=t, hard_negative_weight=1.0, symmetric=True),
        (draw(5, 4), draw(5, 4, seed=1), draw(5, 4, seed=2)),
    ),
    "nt_xent": lambda t: (partial(nt_xent, temperature=t), (draw(5, 4), draw(5, 4, seed=1))),
    **{form: lambda t, form=form: (partial(self_guided, temperature=t, form=form), of_form(form)) for form in FORMS},
    **{
        f"self_contrastive, own_only={own}": lambda t, own=own: (
            partial(self_contrastive, temperature=t, own_only=own),
            (draw(5, 4), draw(5, 4, seed=1), draw(5, 3, 4, seed=2)),
        )
        for own in (False, True)
    },
}


def test_cosines_equal_a_loop():
    left, right = draw(3, 4), draw(5, 4, seed=1)
    expected = torch.stack([torch.stack([a @ b / (a.norm() * b.norm()) for b in right]) for a in left])
    torch.testing.assert_close(cosines(left, right), expected)


@settings(deadline=None, max_examples=30)
@given(sizes, temperatures)
def test_info_nce_is_equations_6_and_8(size, temperature):
    n, more, k, seed = size
    anchors, positives, negatives = (
        draw(n, 4, seed=seed),
        draw(n + more - 1, 4, seed=seed + 1),
        draw(k, 4, seed=seed + 2),
    )
    naive = partial(naive_info_nce, temperature=temperature)
    same(partial(info_nce, temperature=temperature), naive, anchors, positives)
    same(partial(info_nce, temperature=temperature), naive, anchors, positives, negatives)


@pytest.mark.parametrize("weight", [1.0, -0.7])
def test_the_hard_negative_weight_is_added_to_the_own_logit(weight):
    inputs = draw(4, 3), draw(6, 3, seed=1), draw(4, 3, seed=2)
    ours = partial(info_nce, temperature=0.2, hard_negative_weight=weight)
    same(ours, partial(naive_info_nce, temperature=0.2, weight=weight), *inputs)


def test_symmetric_is_the_mean_of_both_directions():
    def both(anchors, positives, negatives):
        there = naive_info_nce(anchors, positives, negatives, temperature=0.2)
        return (there + naive_info_nce(positives, anchors, temperature=0.2)) / 2

    same(partial(info_nce, temperature=0.2, symmetric=True), both, draw(4, 3), draw(4, 3, seed=1), draw(7, 3, seed=2))


def test_what_is_ignored_is_no_negative_and_gets_no_gradient():
    left_out = {(0, 2), (3, 1)}
    ignored = torch.zeros(4, 4, dtype=torch.bool)
    ignored[[0, 3], [2, 1]] = True
    naive = partial(naive_info_nce, temperature=0.2, left_out=left_out)
    same(partial(info_nce, temperature=0.2, ignored=ignored), naive, draw(4, 3), draw(4, 3, seed=1))


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(FORMS), sizes, temperatures)
def test_self_guided_is_the_papers_formula(form, size, temperature):
    b, k, d, seed = size
    views = draw(b, k, d + 1, seed=seed + 1) if form == "opt3" else draw(b, d + 1, seed=seed + 1)
    naive = partial(NAIVE_FORMS[form], temperature=temperature)
    same(partial(self_guided, temperature=temperature, form=form), naive, draw(b, d + 1, seed=seed), views)


def test_the_base_form_is_nt_xent_and_opt3_of_one_layer_is_opt2():
    centres, views = draw(5, 4), draw(5, 4, seed=1)
    assert self_guided(centres, views, temperature=0.1, form="base") == nt_xent(centres, views, temperature=0.1)
    opt2 = self_guided(centres, views, temperature=0.1, form="opt2")
    opt3 = self_guided(centres, views.unsqueeze(1), temperature=0.1, form="opt3")
    torch.testing.assert_close(opt3, opt2)


@pytest.mark.parametrize("form", ["base", "opt3"])
def test_one_sentence_alone_has_nothing_to_be_unlike(form):
    centres, views = draw(1, 4), draw(1, 2, 4) if form == "opt3" else draw(1, 4, seed=1)
    loss = self_guided(centres, views, temperature=0.01, form=form)
    assert loss == 0
    assert all(gradient.eq(0).all() for gradient in torch.autograd.grad(loss, (centres, views)))


@settings(deadline=None, max_examples=30)
@given(sizes, temperatures, st.booleans(), st.sampled_from([1.0, 0.3, 4.0]), st.booleans())
def test_self_contrastive_is_equation_4(size, temperature, own_only, weight, with_plain):
    n, k, d, seed = size
    inputs = draw(n, d, seed=seed), draw(n + k - 1, d, seed=seed + 1), draw(n, k, d, seed=seed + 2)
    shared = {"temperature": temperature, "own_only": own_only, "with_plain": with_plain}
    naive = partial(naive_self_contrastive, weight=weight, **shared)
    same(partial(self_contrastive, negative_weight=weight, **shared), naive, *inputs)


def test_equation_4_as_printed_counts_the_own_layer_once_for_every_sentence():
    def printed(anchors, positives, negatives):
        losses = []
        for i, anchor in enumerate(anchors):
            below = sum(phi(anchor, positive, 0.2) + phi(anchor, negatives[i][0], 0.2) for positive in positives)
            losses.append(-torch.log(phi(anchor, positives[i], 0.2) / below))
        return mean(losses)

    ours = partial(self_contrastive, temperature=0.2, own_only=True, negative_weight=4, with_plain=False)
    same(ours, printed, draw(4, 3), draw(4, 3, seed=1), draw(4, 1, 3, seed=2))


def test_the_defaults_of_self_contrastive_are_the_code():
    """All layer negatives in everybody's denominator, averaged with plain SimCSE, at 0.05."""
    anchors, positives, negatives = draw(4, 3), draw(4, 3, seed=1), draw(4, 2, 3, seed=2)
    expected = (info_nce(anchors, positives, negatives.flatten(0, 1)) + info_nce(anchors, positives)) / 2
    torch.testing.assert_close(self_contrastive(anchors, positives, negatives), expected)


@pytest.mark.parametrize("name", ALL)
@settings(deadline=None, max_examples=10)
@given(order=st.permutations(range(5)), scale=st.floats(0.01, 100))
def test_neither_the_batchs_order_nor_the_vectors_lengths_matter(name, order, scale):
    loss, inputs = ALL[name](0.1)
    torch.testing.assert_close(loss(*(tensor[list(order)] * scale for tensor in inputs)), loss(*inputs))


@pytest.mark.parametrize("name", ALL)
def test_half_precision_and_autocast_lose_nothing_after_the_encoder(name):
    loss, inputs = ALL[name](0.01)
    half = [tensor.detach().bfloat16().requires_grad_() for tensor in inputs]
    ours = loss(*half)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, loss(*(tensor.double() for tensor in half)).float(), rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert loss(*half) == ours
        assert loss(*inputs).dtype == torch.float64
    ours.backward()
    assert all(tensor.grad.dtype == torch.bfloat16 and tensor.grad.isfinite().all() for tensor in half)


@pytest.mark.parametrize("name", ALL)
def test_a_zero_vector_at_a_low_temperature_gets_no_wild_gradient(name):
    loss, inputs = ALL[name](0.001)
    inputs = [tensor.detach().float().index_fill(0, torch.tensor([2]), 0).requires_grad_() for tensor in inputs]
    loss(*inputs).backward()
    assert all(tensor.grad.abs().max() < 10 / 0.001 for tensor in inputs)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("temperature", [0, -0.05, math.nan, math.inf])
def test_a_temperature_is_above_zero(name, temperature):
    loss, inputs = ALL[name](temperature)
    with pytest.raises(InputError, match=rf"^temperature {temperature} is not possible; give a number above 0$"):
        loss(*inputs)


def test_large_batches_make_no_tensor_of_all_layers_by_all_layers():
    """512 sentences, 13 layers: (b, b, k) is 3.4 million numbers, (b, k, b, k) would be 44 million."""
    counted = []

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            counted.extend(part.numel() for part in [result] if isinstance(part, torch.Tensor))
            return result

    with Count():
        self_guided(torch.randn(512, 8), torch.randn(512, 13, 8), temperature=0.05, form="opt3")
    assert max(counted) == 512 * 512 * 13


A, STACK = torch.ones(3, 4), torch.ones(3, 2, 4)
BAD_SHAPES = [
    (lambda: cosines(A, torch.ones(3, 5)), r"The widths differ: left 4, right 5; give vectors of one width"),
    (lambda: cosines(A, torch.ones(4)), r"right: the shape is \(4,\); expected \(rows, width\), each at least 1"),
    (lambda: info_nce(STACK, A), r"anchors: the shape is \(3, 2, 4\); expected \(rows, width\)"),
    (lambda: info_nce(A[:0], A), r"anchors: the shape is \(0, 4\); expected .*, each at least 1"),
    (lambda: info_nce(A, A[:2]), r"2 positives for 3 anchors; .* so give at least 3"),
    (lambda: info_nce(A, A, torch.ones(3, 5)), r"The widths differ: anchors 4, positives 4, negatives 5"),
    (lambda: info_nce(A[:2], A, symmetric=True), r"symmetric needs one positive an anchor; 3 came for 2 anchors"),
    (lambda: info_nce(A, A, A[:2], hard_negative_weight=1.0), r"needs one negative an anchor; 2 came for 3 anchors"),
    (lambda: info_nce(A, A, hard_negative_weight=1.0), r"needs one negative an anchor; 0 came .* or the weight 0"),
    (lambda: info_nce(A, A, A, ignored=A > 1), r"The shapes differ: ignored \(3, 4\), logits \(3, 6\)"),
    (lambda: info_nce(A, A, ignored=torch.eye(3)), r"ignored: torch.float32 came; expected bool"),
    (lambda: nt_xent(A, A[:2], temperature=1), r"The shapes differ: left \(3, 4\), right \(2, 4\)"),
    (lambda: self_guided(A, STACK, temperature=1, form="opt1"), r"views: the shape is \(3, 2, 4\); expected \(sent"),
    (lambda: self_guided(A, A, temperature=1, form="opt3"), r"views: .* expected \(sentences, layers, width\)"),
    (lambda: self_guided(A[:2], STACK, temperature=1, form="opt3"), r"The shapes differ: centres \(2, 4\)"),
    (lambda: self_contrastive(A, A, A), r"layer_negatives: .* expected \(sentences, layers, width\)"),
    (lambda: self_contrastive(A, A, STACK[:2]), r"layer_negatives are of 2 sentences, and there are 3 anchors"),
    (lambda: self_contrastive(A, A, torch.ones(3, 2, 5)), r"The widths differ: anchors 4, layer_negatives 5"),
    (lambda: self_contrastive(A, A, STACK, negative_weight=0), r"negative_weight 0 is not possible"),
    (lambda: squared_distance([A], []), r"1 parameters and 0 starting values came; give one for each"),
    (lambda: squared_distance([A], [STACK]), r"Parameter 0 has the shape \(3, 4\) and its starting value \(3, 2, 4\)"),
    (lambda: squared_distance([], []), r"No parameters came"),
    (lambda: add_pull_to_start([A], [A], strength=-1), r"strength -1 is not possible; give 0 or a number above it"),
    (lambda: masked_language_loss(A, A), r"logits: .* expected \(sentences, tokens, vocabulary\)"),
    (lambda: masked_language_loss(STACK, A), r"The shapes differ: logits \(3, 2\), labels \(3, 4\)"),
    (lambda: replaced_token_loss(A, A[:2], A), r"The shapes differ: logits \(3, 4\), replaced \(2, 4\), mask"),
]


@pytest.mark.parametrize(("call", "text"), BAD_SHAPES)
def test_a_wrong_shape_is_named_with_what_was_expected(call, text):
    with pytest.raises(InputError, match=text):
        call()


def test_an_unknown_form_lists_the_known_ones():
    with pytest.raises(
        LayerwiseError, match=r"Unknown form .* 'opt4'\. Did you mean 'opt\d'\? Known: base, opt1, opt2"
    ):
        self_guided(A, A, temperature=1, form="opt4")


# --- the pull back to the start


def test_the_squared_distance_is_the_plain_sum():
    now, then = [draw(2, 3), draw(4, seed=1)], [draw(2, 3, seed=2), draw(4, seed=3)]
    plain = sum(
        (a - b) ** 2 for p, q in zip(now, then, strict=True) for a, b in zip(p.flatten(), q.flatten(), strict=True)
    )
    torch.testing.assert_close(squared_distance(now, then), plain)
    squared_distance(now, then).backward()
    assert all(value.grad is None for value in then), "the start is fixed"


def test_the_pull_equals_the_gradient_of_the_squared_distance():
    now, then = [draw(2, 3), draw(4, seed=1), draw(5, seed=4)], [draw(2, 3, seed=2), draw(4, seed=3), draw(5, seed=5)]
    now[2].requires_grad_(False)
    now[1].grad = torch.ones(4, dtype=torch.float64)
    expected = torch.autograd.grad(0.7 * squared_distance(now, then), now[:2])
    add_pull_to_start(iter(now), iter(then), strength=0.7)
    torch.testing.assert_close(now[0].grad, expected[0])
    torch.testing.assert_close(now[1].grad, expected[1] + 1)
    assert now[2].grad is None
    assert not now[0].grad.requires_grad


def test_at_the_start_nothing_pulls_and_all_frozen_is_no_error():
    now = draw(100, dtype=torch.float32)
    then = now.detach().clone()
    now.grad = torch.full_like(now, 1e-9)
    add_pull_to_start([now], [then], strength=0.1)
    assert (now.grad == 1e-9).all()
    add_pull_to_start([then], [then], strength=0.1)
    assert then.grad is None


# --- tokens

IDS = torch.arange(1000, 1000 + 20_000).view(200, 100)
SPECIAL = torch.zeros(200, 100, dtype=torch.bool)
SPECIAL[:, 0] = SPECIAL[:, 90:] = True


def masked(seed=0, **options):
    options = {"mask_id": 103, "vocabulary": 30_000, "share": 0.15} | options
    return mask_tokens(IDS, SPECIAL, generator=torch.Generator().manual_seed(seed), **options)


def test_masking_is_80_10_10_of_the_share_and_never_special():
    before = IDS.clone()
    ids, labels = masked()
    chosen = labels != -100
    assert torch.equal(IDS, before)
    assert not chosen[SPECIAL].any()
    assert torch.equal(ids[~chosen], IDS[~chosen])
    assert torch.equal(labels[chosen], IDS[chosen])
    count = (~SPECIAL).sum()
    assert chosen.sum() / count == pytest.approx(0.15, abs=0.01)
    hidden, stayed = ids[chosen] == 103, ids[chosen] == IDS[chosen]
    assert hidden.float().mean() == pytest.approx(0.8, abs=0.03)
    assert stayed.float().mean() == pytest.approx(0.1, abs=0.03)
    drawn = ids[chosen][~hidden & ~stayed]
    assert drawn.min() >= 0
    assert drawn.max() < 30_000
    assert drawn.float().mean() == pytest.approx(15_000, rel=0.15)


def test_without_keep_and_random_every_chosen_token_is_the_mask():
    ids, labels = masked(share=0.3, keep=0, random=0)
    assert (ids[labels != -100] == 103).all()
    assert (labels != -100).sum() / (~SPECIAL).sum() == pytest.approx(0.3, abs=0.015)


@pytest.mark.parametrize("share", [0, 1])
def test_a_share_of_nothing_or_everything(share):
    ids, labels = masked(share=share)
    assert torch.equal(labels != -100, ~SPECIAL if share else torch.zeros_like(SPECIAL))
    assert share or torch.equal(ids, IDS)


def test_the_same_seed_masks_alike_and_int32_ids_and_masks_of_numbers_do():
    one, other = masked(seed=3), masked(seed=3)
    assert all(map(torch.equal, one, other))
    assert not torch.equal(masked(seed=4)[1], one[1])
    generator = torch.Generator().manual_seed(3)
    ids, labels = mask_tokens(
        IDS.int(), SPECIAL.long(), mask_id=103, vocabulary=30_000, share=0.15, generator=generator
    )
    assert ids.dtype == torch.int32
    assert torch.equal(ids.long(), one[0])
    assert torch.equal(labels, one[1])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"share": 1.5}, "share 1.5 is not possible; give a number from 0 to 1"),
        ({"keep": -0.1}, "keep -0.1 is not possible"),
        ({"keep": 0.6, "random": 0.6}, "keep 0.6 and random 0.6 are more than 1 together"),
        ({"mask_id": 30_000}, "mask_id 30000 is not one of 30000 ids; give the tokenizer's mask_token_id"),
    ],
)
def test_masking_refuses_what_is_no_chance(options, text):
    with pytest.raises(InputError, match=text):
        masked(**options)


def test_masked_language_loss_is_the_mean_over_chosen_tokens():
    labels = torch.tensor([[-100, 2, -100], [0, -100, 4]])

    def naive(logits):
        where = [(0, 1, 2), (1, 0, 0), (1, 2, 4)]
        return mean(-torch.log(logits[i, j, k].exp() / logits[i, j].exp().sum()) for i, j, k in where)

    same(partial(masked_language_loss, labels=labels), naive, draw(2, 3, 5))


def test_replaced_token_loss_is_the_mean_over_the_masks_tokens():
    replaced = torch.tensor([[True, False, True], [False, True, False]])
    mask = torch.tensor([[True, True, False], [True, False, False]])

    def naive(logits):
        right = [torch.sigmoid(logits[0, 0]), 1 - torch.sigmoid(logits[0, 1]), 1 - torch.sigmoid(logits[1, 0])]
        return mean(-torch.log(chance) for chance in right)

    same(partial(replaced_token_loss, replaced=replaced, mask=mask), naive, draw(2, 3))
    logits = draw(2, 3).detach().masked_fill(~mask, torch.nan).requires_grad_()
    replaced_token_loss(logits, replaced, mask.long()).backward()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_without_a_token_to_look_at_token_losses_are_zero(dtype):
    logits = draw(2, 3, 5, dtype=dtype)
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    for loss in (
        masked_language_loss(logits, torch.full((2, 3), -100)),
        replaced_token_loss(logits[..., 0], nothing, nothing),
    ):
        assert loss == 0
        (gradient,) = torch.autograd.grad(loss, logits)
        assert gradient.eq(0).all()


def test_token_losses_of_half_precision_are_computed_in_float32():
    logits = (draw(4, 6, 50, dtype=torch.bfloat16) * 5).detach()
    labels = torch.arange(24).view(4, 6)
    ours = masked_language_loss(logits, labels)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, masked_language_loss(logits.double(), labels).float())
    replaced, kept = labels % 3 == 0, labels % 2 == 0
    ours = replaced_token_loss(logits[..., 0], replaced, kept)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, replaced_token_loss(logits[..., 0].double(), replaced, kept).float())


def test_the_room_exports_what_it_promises():
    assert all(callable(getattr(objectives, name)) for name in objectives.__all__)
