"""Estimators in scikit-learn's manner, without scikit-learn: the constructor stores, and its arguments can be read."""

import inspect
from typing import Any, Self

from layerwise.registry import check_known


class Parameters:
    """`get_params`, `set_params` and `repr` for a class whose constructor stores its arguments and does no more."""

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        """The constructor's arguments and their defaults."""
        return {
            name: argument.default for name, argument in inspect.signature(cls).parameters.items() if name != "self"
        }

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - scikit-learn's contract
        """The constructor's arguments by name."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Change some of the constructor's arguments."""
        for name in params:
            check_known(name, self._defaults(), "parameter")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """Show the non-default parameters, such as `Search(metric='pearson', seed=3)`."""
        defaults = self._defaults()
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value is not defaults[name] and repr(value) != repr(defaults[name])
        ]
        return f"{type(self).__name__}({', '.join(changed)})"
