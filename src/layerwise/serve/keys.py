"""API keys: compared in constant time, stored as digests only, and never logged."""

import base64
import binascii
import hashlib
import hmac
from pathlib import Path

from layerwise.errors import InputError

_SHORTEST = 16


class Keys:
    """The API keys of a file, one a line; empty lines and lines starting with # are ignored."""

    def __init__(self, keys: list[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    @classmethod
    def read(cls, path: str | Path) -> "Keys":
        """Read a file of keys; raise for short ones, which could be guessed."""
        file = Path(path).expanduser()
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise InputError(f"{file}: cannot be read: {error.strerror or error}; give a file of keys") from error
        except UnicodeDecodeError as error:
            raise InputError(f"{file}: is not UTF-8 text; give a file with one key a line") from error
        keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not keys:
            raise InputError(f"{file}: holds no keys; write one a line, such as the output of: openssl rand -hex 24")
        for number, key in enumerate(keys, start=1):
            if len(key) < _SHORTEST or not key.isascii():
                raise InputError(
                    f"{file}: key {number} has fewer than {_SHORTEST} characters or is not ASCII; make one by: openssl "
                    f"rand -hex 24"
                )
        return cls(keys)

    def allow(self, authorization: str | None) -> bool:
        """Whether the header contains a valid key: `Bearer KEY`, or from a browser, `Basic base64(name:KEY)`."""
        digest = _digest(_key_of(authorization or ""))
        matches = [hmac.compare_digest(digest, known) for known in self._digests]  # no early exit: constant time
        return any(matches)


def _key_of(authorization: str) -> str:
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value.strip(), validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return ""
    return ""


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
