"""What everything fitted on embeddings can do: `fit`, `transform`, and become a head of a model."""

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
    """Fitted on embeddings, as scikit-learn does it: the constructor only stores, results end in `_`.

    Attributes:
        fitted_on_: The text of the embeddings, as far as it is known.
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
        """(sentences, width) -> (sentences, any width); float64 stays, other kinds give float32."""
        self.check_fitted()
        checked = check_embeddings(embeddings)
        if checked.shape[1] != self.in_features_:
            raise InputError(f"the embeddings are {checked.shape[1]} wide; fitted was on {self.in_features_}")
        return self._transform(checked).astype(np.float64 if embeddings.dtype == np.float64 else np.float32)

    def fit_transform(self, embeddings: Embeddings, *, fitted_on: FittedOn | None = None) -> Embeddings:
        """`fit`, then `transform` of the same embeddings."""
        return self.fit(embeddings, fitted_on=fitted_on).transform(embeddings)

    def check_fitted(self) -> None:
        """Refuse what was not fitted yet."""
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
    """Embeddings as checked float64."""
    checked = np.asarray(embeddings, dtype=np.float64)
    if checked.ndim != 2 or not checked.size:
        raise InputError(
            f"embeddings have the shape {checked.shape}; expected (sentences, width), with one of each or more"
        )
    broken = np.flatnonzero(~np.isfinite(checked).all(axis=1))
    if len(broken):
        rows = ", ".join(map(str, broken[:5])) + (", …" if len(broken) > 5 else "")
        raise InputError(f"{len(broken)} embeddings hold NaN or infinite numbers: rows {rows}; leave them out")
    return checked
