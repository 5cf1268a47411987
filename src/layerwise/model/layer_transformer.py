"""LayerTransformer: texts to embeddings as a step of a scikit-learn pipeline."""

import os
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from layerwise.encoder import DEFAULT, LayerEncoder, ViewCache, check_sentences
from layerwise.errors import InputError
from layerwise.extras import require
from layerwise.mixes import Mix
from layerwise.model.layer_model import LayerModel

require("sklearn", "LayerTransformer", "sklearn")
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin  # noqa: E402
from sklearn.utils.validation import check_is_fitted  # noqa: E402

Texts = Iterable[str]


class LayerTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Embeds texts by a mix of an encoder's layers.

    Args:
        model: A folder or hub name, or a `LayerModel` or `LayerEncoder`, which all clones of the transformer share.
        mix: A layer mix or its text, such as "1,6 @ mean"; without it the model's own, with its heads.
        normalize: Make every embedding's length 1.
        cache: True, or a `ViewCache`, to keep the views of all layers on disk: a grid search over mixes then encodes
            the texts of each fold once.
        device: Where a model given by name runs; without it a GPU where there is one.

    Attributes:
        model_: The `LayerModel` that embeds.

    >>> LayerTransformer(mix="1,6").fit_transform(["A cat sat.", "It rained."]).shape
    (2, 384)
    """

    def __init__(
        self,
        model: LayerModel | LayerEncoder | str | os.PathLike[str] = DEFAULT,
        mix: Mix | str | None = None,
        *,
        normalize: bool = False,
        cache: ViewCache | bool = False,
        device: str | None = None,
    ) -> None:
        self.model = model
        self.mix = mix
        self.normalize = normalize
        self.cache = cache
        self.device = device

    def fit(self, X: Texts, y: object = None) -> Self:  # noqa: N803, ARG002 - scikit-learn's names
        """Load the model; nothing is learnt from the texts, and labels are not used."""
        _checked(X)
        self.model_ = self._loaded()
        self._n_features_out = self.model_.width  # for get_feature_names_out
        return self

    def transform(self, X: Texts) -> NDArray[np.float32]:  # noqa: N803 - scikit-learn's name
        """The embeddings of texts, float32 (texts, width)."""
        check_is_fitted(self)
        model, texts = self.model_, _checked(X)
        if not self.cache or model.mix.reads_tokens:
            return model.encode(texts, normalize_embeddings=self.normalize)
        prompt = model.prompt()
        views = model.encoder.encode_layers([prompt + text for text in texts], model.mix.poolings, cache=self.cache)
        embeddings = model.embed_views(views)
        model.encoder.check_finite(embeddings)
        return _unit_length(embeddings) if self.normalize else embeddings

    def _loaded(self) -> LayerModel:
        if isinstance(self.model, str | os.PathLike):
            return LayerModel.load(self.model, mix=self.mix, device=self.device)
        model = LayerModel(self.model) if isinstance(self.model, LayerEncoder) else self.model
        return model if self.mix is None else model.with_mix(self.mix)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.transformer_tags.preserves_dtype = []
        return tags


def _checked(texts: Texts) -> list[str]:
    """Return the texts of one column; raise for a table, as iterating would yield its column names."""
    shape = getattr(texts, "shape", None)
    if shape is not None and len(shape) != 1:
        raise InputError(
            f"LayerTransformer takes one column of texts, not a table of shape {tuple(shape)}; "
            f"give the column, in a ColumnTransformer by its name alone ('text', not ['text'])"
        )
    return check_sentences(texts if isinstance(texts, str) else list(texts))


def _unit_length(embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    unit: NDArray[np.float32] = embeddings / np.maximum(lengths, 1e-12)
    return unit
