"""The base class of transformations fitted on embeddings, which can become heads of a model."""

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import nn

from layerwise.errors import InputError
from layerwise.postprocess.fitted_on import FittedOn

Embeddings = NDArray[np.floating[Any]]
Exact = NDArray[np.float64]


class Postprocess(ABC):
    """A transformation fitted on embeddings, in scikit-learn's conventions.

    Attributes:
        fitted_on_: The record of the text of the embeddings.
        in_features_: The width of the embeddings.
    """

    name: str
    fitted_on_: FittedOn
    in_features_: int

    def fit(self, embeddings: Embeddings, *, fitted_on: FittedOn | None = None) -> Self:
        """Fit on embeddings (sentences, width); `fitted_on` records their text, `FittedOn.of(texts, source=…)`."""
        checked = check_embeddings(embeddings)
        if fitted_on is not None and fitted_on.sentences != len(checked):
            raise InputError(f"fitted_on records {fitted_on.sentences} sentences, but there are {len(checked)} rows")
        self._fit(checked)
        self.in_features_ = checked.shape[1]
        self.fitted_on_ = (fitted_on or FittedOn.unknown(len(checked))).named(self.name)
        return self

    def transform(self, embeddings: Embeddings) -> Embeddings:
        """(sentences, width) -> (sentences, any width), in float32, or in float64 for float64."""
        self.check_fitted()
        checked = check_embeddings(embeddings)
        if checked.shape[1] != self.in_features_:
            raise InputError(f"the embeddings are {checked.shape[1]} wide; fitted was on {self.in_features_}")
        return self._transform(checked).astype(np.float64 if embeddings.dtype == np.float64 else np.float32)

    def fit_transform(self, embeddings: Embeddings, *, fitted_on: FittedOn | None = None) -> Embeddings:
        """`fit`, then `transform` of the same embeddings."""
        return self.fit(embeddings, fitted_on=fitted_on).transform(embeddings)

    def check_fitted(self) -> None:
        """Raise `InputError` before `fit`."""
        if not hasattr(self, "fitted_on_"):
            raise InputError(f"This {type(self).__name__} is not fitted yet: call fit(embeddings) first")

    @abstractmethod
    def module(self) -> nn.Module:
        """The same transformation as a torch module of float32, (..., in) -> (..., out), with a copy of the weights."""

    @abstractmethod
    def _fit(self, embeddings: Exact) -> None: ...

    @abstractmethod
    def _transform(self, embeddings: Exact) -> Exact: ...


def check_embeddings(embeddings: Embeddings) -> Exact:
    """Convert embeddings to float64 and check them."""
    checked = np.asarray(embeddings, dtype=np.float64)
    if checked.ndim != 2 or not checked.size:
        raise InputError(
            f"embeddings have the shape {checked.shape}; expected (sentences, width), with one of each or more"
        )
    invalid = np.flatnonzero(~np.isfinite(checked).all(axis=1))
    if len(invalid):
        rows = ", ".join(map(str, invalid[:5])) + (", …" if len(invalid) > 5 else "")
        raise InputError(f"{len(invalid)} embeddings hold NaN or infinite numbers: rows {rows}; leave them out")
    return checked
