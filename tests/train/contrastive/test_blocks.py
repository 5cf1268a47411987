"""Students of fewer blocks: which are kept, the search for them, and the saved model."""

from itertools import combinations

import numpy as np
import pytest

from layerwise.errors import InputError
from layerwise.model import LayerModel
from layerwise.train.contrastive.blocks import (
    KeptBlocks,
    agreement,
    kept_blocks,
    pair_cosines,
    sample_evenly,
    search_blocks,
)
from support.tiny import SENTENCES
from support.training import encoder_of, losses, recipe, save_masked_bert, term, texts, train_recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_masked_bert(tmp_path_factory.mktemp("masked") / "bert")


@pytest.mark.parametrize(
    ("blocks", "kept"),
    [(3, (1, 6, 12)), ("2", (1, 12)), ("1,4,7,10", (1, 4, 7, 10)), ("2-4, 9", (2, 3, 4, 9)), ("best 4", 4)],
)
def test_blocks_of_a_setting(blocks, kept):
    named = kept_blocks(blocks, 12)
    assert (named.kept if isinstance(named, KeptBlocks) else named) == kept


@pytest.mark.parametrize("blocks", ["1,", "best", "some", "-1", 0.5, "1;2"])
def test_a_setting_that_names_no_blocks(blocks):
    with pytest.raises(InputError, match="expected a number"):
        recipe(model={"blocks": str(blocks)})


@pytest.mark.parametrize("blocks", [13, 0, "best 13", "3,2", "1,13", "1,1", "0-2", "5-2"])
def test_blocks_that_the_encoder_does_not_have(blocks):
    with pytest.raises(InputError, match=r"1 to 12"):
        kept_blocks(blocks, 12)


@pytest.mark.slow
def test_the_search_leaves_out_the_block_that_matters_least(folder):
    encoder = encoder_of(folder)

    def embed(shorter):
        return LayerModel(shorter, "last @ mean").encode(SENTENCES)

    teacher = LayerModel(encoder, "2 @ mean").encode(SENTENCES)
    expected = pair_cosines(teacher)
    for count in (3, 1):
        found = search_blocks(encoder, count, embed=embed, teacher=teacher, source="layer 2")
        assert (len(found.kept), found.of) == (count, 4)
        assert "layer 2" in found.chosen
    scores = {kept: agreement(embed(encoder.with_blocks(kept)), expected) for kept in combinations(range(1, 5), 3)}
    assert search_blocks(encoder, 3, embed=embed, teacher=teacher, source="").kept == max(scores, key=scores.get)


def test_the_search_finds_the_blocks_that_made_the_teacher(folder):
    encoder = encoder_of(folder)
    teacher = LayerModel(encoder.with_blocks([1, 3, 4]), "last @ mean").encode(SENTENCES)
    found = search_blocks(
        encoder, 3, embed=lambda one: LayerModel(one, "last @ mean").encode(SENTENCES), teacher=teacher, source="it"
    )
    assert found.kept == (1, 3, 4)
    assert "Spearman 1.000" in found.chosen


def test_cosines_of_all_pairs():
    rows = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]], dtype=np.float32)
    assert pair_cosines(rows) == pytest.approx([0, 2**-0.5, 2**-0.5])
    assert agreement(np.ones((3, 2), dtype=np.float32), pair_cosines(rows)) == -1
    assert sample_evenly("abcdefg", 3) == ["a", "d", "g"]
    assert sample_evenly("ab", 5) == ["a", "b"]


@pytest.mark.parametrize("blocks", [pytest.param(2, marks=pytest.mark.slow), "best 2"])  # the latter does both
def test_a_student_of_fewer_blocks_is_trained_and_saved(folder, tmp_path, tiny_folders, blocks):
    what = recipe(
        term("distil", teacher=str(tiny_folders["roberta"])),
        model={"pooler": "last @ mask in means", "blocks": blocks},
        steps=20,
        learning_rate=3e-3,
    )
    trained = train_recipe(what, tmp_path / "run", encoder=str(folder), corpus=texts(8), device="cpu")
    found = losses(trained)
    assert sum(found[-3:]) < 0.97 * sum(found[:3])
    facts = trained.facts["blocks"]
    assert (facts["of"], len(facts["kept"])) == (4, 2)
    assert ("roberta" in facts["chosen"]) == (blocks == "best 2")
    trained.model.save(tmp_path / "model")
    loaded = LayerModel.load(tmp_path / "model", device="cpu")
    assert loaded.encoder.depth == 2
    np.testing.assert_allclose(loaded.encode(SENTENCES), trained.model.encode(SENTENCES), rtol=1e-4, atol=1e-5)
    card = (tmp_path / "model" / "README.md").read_text()
    assert "| blocks kept | 2 of 4 |" in card
    assert f"| blocks.kept | {', '.join(map(str, facts['kept']))} |" in card


@pytest.mark.slow  # three trainings
def test_training_fewer_blocks_is_resumed(folder, tmp_path):
    what = recipe(model={"blocks": "1,3"}, steps=6, dev={"every": 3})
    whole = train_recipe(what, tmp_path / "whole", encoder=str(folder), corpus=texts(), device="cpu")
    stop = {"at": 4}

    def interrupt(step, *_):
        if step == stop["at"]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_recipe(what, tmp_path / "run", encoder=str(folder), corpus=texts(), device="cpu", on_step=interrupt)
    resumed = train_recipe(what, tmp_path / "run", encoder=str(folder), corpus=texts(), device="cpu", resume=True)
    np.testing.assert_array_equal(resumed.model.encode(SENTENCES), whole.model.encode(SENTENCES))


def test_a_head_that_begins_as_the_identity(folder, tmp_path):
    what = recipe(model={"head": "identity", "width": 40, "keep_head": True}, learning_rate=1e-9, steps=1)
    model = train_recipe(what, tmp_path / "run", encoder=encoder_of(folder), corpus=texts(8)).model
    plain = LayerModel(encoder_of(folder), "last @ cls").encode(SENTENCES)
    np.testing.assert_allclose(model.encode(SENTENCES)[:, :32], plain, atol=1e-4)
    np.testing.assert_allclose(model.encode(SENTENCES)[:, 32:], 0, atol=1e-4)
