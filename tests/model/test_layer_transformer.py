"""LayerTransformer in scikit-learn's pipelines, grids and own checks."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import validate_data

from layerwise import LayerEncoder, LayerModel, LayerTransformer
from layerwise.errors import InputError, MissingExtraError, MixError
from layerwise.mixes import parse_mix
from support.tiny import SENTENCES, save_tiny

TEXTS = [f"{text} {word}" for text in SENTENCES for word in ("rain", "door", "clock", "river")]
LABELS = np.array([len(text) % 2 for text in TEXTS])


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return LayerEncoder(tiny_bert, device="cpu")


class NumbersAsTexts(LayerTransformer):
    """Rows of numbers written out as texts, for scikit-learn's checks give tables of numbers."""

    def fit(self, X, y=None):  # noqa: N803
        return super().fit(_written(validate_data(self, X)))

    def transform(self, X):  # noqa: N803
        return super().transform(_written(validate_data(self, X, reset=False)))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = False, True
        return tags


def _written(rows):
    """Two digits of each number as letters, the sign as a mark."""
    return [" ".join("".join("abcdefghij.!"["0123456789.-".index(c)] for c in f"{n:.2f}") for n in row) for row in rows]


@pytest.fixture(scope="module", autouse=True)
def folder_of_the_checks(tmp_path_factory, monkeypatch_module):
    """The checks make their estimators when the tests are collected, so that they find the model by its name later."""
    folder = tmp_path_factory.mktemp("checks")
    save_tiny("bert", folder / "model")
    monkeypatch_module.chdir(folder)


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@parametrize_with_checks([NumbersAsTexts("./model", device="cpu"), LayerTransformer("./model", device="cpu")])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_a_pipeline_classifies(encoder):
    pipeline = make_pipeline(LayerTransformer(encoder, "1,3"), LogisticRegression(max_iter=1000)).fit(TEXTS, LABELS)
    embeddings = LayerModel(encoder, "1,3").encode(TEXTS)
    expected = LogisticRegression(max_iter=1000).fit(embeddings, LABELS).predict(embeddings)
    assert (pipeline.predict(TEXTS) == expected).all()
    assert (pickle.loads(pickle.dumps(pipeline)).predict(TEXTS) == expected).all()
    names = pipeline[0].get_feature_names_out()
    assert list(names[:2]) == ["layertransformer0", "layertransformer1"]
    assert len(names) == 32


def test_a_grid_over_mixes_encodes_the_texts_of_each_fold_once(encoder, monkeypatch, tmp_path):
    read = []
    passes = LayerEncoder._fill
    monkeypatch.setattr(LayerEncoder, "_fill", lambda self, *args: (read.append(args), passes(self, *args))[1])
    steps = Pipeline([("embed", LayerTransformer(encoder, cache=True)), ("classify", LogisticRegression())])
    mixes = ["last", "1,2", parse_mix("0:0.25,4:0.75"), "concat(1,4)", "last @ cls | last @ mean"]
    grid = GridSearchCV(steps, {"embed__mix": mixes}, cv=3).fit(TEXTS, LABELS)
    poolings = 2  # the join also reads the first token
    assert len(read) <= poolings * (2 * 3 + 1), "training and test texts of three folds, and all texts at the end"
    alone = make_pipeline(LayerTransformer(encoder, "1,2"), LogisticRegression())
    expected = cross_val_score(alone, TEXTS, LABELS, cv=3).mean()
    assert grid.cv_results_["mean_test_score"][1] == pytest.approx(expected)


@pytest.mark.parametrize("mix", ["last", "1,3 @ max", "wk(start=1)", "last @ cls | 2 @ mean"])
@pytest.mark.parametrize("normalize", [False, True])
def test_cached_views_give_the_same_embeddings(mix, normalize, encoder):
    plain, cached = (
        LayerTransformer(encoder, mix, normalize=normalize, cache=cache).fit_transform(TEXTS) for cache in (False, True)
    )
    assert np.allclose(plain, cached, atol=1e-5)
    expected = LayerModel(encoder, mix).encode(TEXTS, normalize_embeddings=normalize)
    assert np.allclose(plain, expected, atol=1e-6)


def test_the_models_own_mix_prompt_and_heads_are_used_unless_a_mix_is_named(encoder, tiny_bert):
    model = LayerModel(encoder, "2 @ cls", normalize=True, prompts={"said": "rain "}, default_prompt_name="said")
    for cache in (False, True):
        own = LayerTransformer(model, cache=cache).fit_transform(TEXTS)
        assert np.allclose(own, model.encode(TEXTS), atol=1e-6)
        other = LayerTransformer(model, "last", cache=cache).fit_transform(TEXTS)
        assert np.allclose(other, model.with_mix("last").encode(TEXTS), atol=1e-6)
    by_name = LayerTransformer(tiny_bert, device="cpu").fit_transform(TEXTS)
    assert np.allclose(by_name, LayerModel(encoder).encode(TEXTS), atol=1e-6)


def test_clones_share_the_weights(encoder):
    transformer = LayerTransformer(LayerModel(encoder), "1")
    assert clone(transformer).model is transformer.model
    assert clone(LayerTransformer(encoder)).model is encoder


def test_columns_and_tables(encoder):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"text": TEXTS, "length": [len(text) for text in TEXTS]})
    expected = LayerModel(encoder).encode(TEXTS)
    columns = make_column_transformer((LayerTransformer(encoder), "text"), ("passthrough", ["length"]))
    assert np.allclose(columns.fit_transform(frame)[:, :32], expected, atol=1e-6)
    named = LayerTransformer(encoder).set_output(transform="pandas").fit_transform(frame["text"])
    assert list(named.columns[:1]) == ["layertransformer0"]
    for table in (frame, frame[["text"]], np.array([TEXTS]).T):
        with pytest.raises(InputError, match=re.escape(f"one column of texts, not a table of shape {table.shape}")):
            LayerTransformer(encoder).fit(table)


@pytest.mark.parametrize(
    ("texts", "message"), [("one text", "one string; give a list"), (["a", None], "sentence 1 is None, not a text")]
)
def test_what_is_no_text_is_refused(texts, message, encoder):
    with pytest.raises(InputError, match=message):
        LayerTransformer(encoder).fit(texts)


def test_an_impossible_mix_is_refused_by_fit(encoder):
    with pytest.raises(MixError, match="There is no layer 9"):
        LayerTransformer(encoder, "9").fit(TEXTS)


def test_without_scikit_learn_the_door_says_how_to_install_it(monkeypatch):
    import sys

    import layerwise.extras

    monkeypatch.delitem(sys.modules, "layerwise.model.layer_transformer")
    monkeypatch.setattr(layerwise.extras, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"needs sklearn: pip install 'layerwise\[sklearn\]'"):
        from layerwise import LayerTransformer  # noqa: F401


def test_the_lines_of_the_documentation_run(tmp_path, encoder, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "mixes.md").read_text(encoding="utf-8")
    section = page.partition("## In scikit-learn")[2]
    code = section.split("```python")[1].split("```")[0].replace("LayerEncoder()", "encoder").replace("1,2,6", "1,2")
    names = {"texts": TEXTS, "labels": LABELS, "encoder": encoder}
    exec(code, names)  # noqa: S102 - our own documentation
    assert names["grid"].best_params_["layertransformer__mix"] in ("last", "first-last", "1,2")
