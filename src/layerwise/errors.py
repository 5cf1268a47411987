"""What goes wrong through no fault of the program: one clear line each, which the command line prints as it is."""


class LayerwiseError(ValueError):
    """The base of every error that a user can mend. Its text says what came, what was expected, what to do."""


class InputError(LayerwiseError):
    """A file, row or value given by the user can't be used."""


class MissingColumnError(InputError):
    """A file has no column of the name asked for."""


class MixError(LayerwiseError):
    """A layer mix that can't be read, or that names layers which the encoder has not."""


class ModelError(LayerwiseError):
    """A model folder or hub name that can't be loaded or saved."""


class TrainingError(LayerwiseError):
    """A training that can't go on."""


class MissingExtraError(LayerwiseError):
    """An optional dependency is not installed."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(f"{purpose}: pip install 'layerwise[{extra}]'")
