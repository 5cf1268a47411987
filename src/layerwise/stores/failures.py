"""Errors of object stores: one line with URL, reason and remedy, without secrets."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from layerwise.errors import InputError

# Errors of the clients that are no OSError; where a client is not imported, none of its errors can come.
_CLIENT_ERRORS = {
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
    "aiohttp": ("ClientError",),
    "google.auth.exceptions": ("GoogleAuthError",),
    "gcsfs.retry": ("HttpError",),
    "httpx": ("HTTPError",),
    "huggingface_hub.errors": ("HfHubHTTPError", "HFValidationError", "OfflineModeIsEnabled"),
}
_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile in AWS_PROFILE",
    "gs": "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS",
    "hf": "run `hf auth login`, or set HF_TOKEN",
}
_USER = re.compile(r"(?<=://)[^/\s@]+@")
_QUERY = re.compile(r"(://[^\s?\"']*)\?[^\s\"']*")


def without_secrets(text: str) -> str:
    """Remove possible secrets from URLs in a text: the user before the host, and the query string.

    >>> without_secrets("https://key:secret@host/rows.csv?X-Amz-Signature=abc")
    'https://host/rows.csv'
    """
    return _QUERY.sub(r"\1", _USER.sub("", text))


@contextmanager
def failures(url: str, what: str) -> Iterator[None]:
    """Convert a store's errors in the block to `InputError`; `what` describes what failed."""
    try:
        yield
    except _errors() as error:
        raise InputError(f"{without_secrets(url)}: {what}: {_reason(error)}; {_remedy(url, error)}") from error


def _errors() -> tuple[type[BaseException], ...]:
    named = [
        getattr(sys.modules[module], name, OSError)
        for module, names in _CLIENT_ERRORS.items()
        if module in sys.modules
        for name in names
    ]
    return (OSError, NotImplementedError, *named)


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    if isinstance(error, FileNotFoundError) and (not lines or " " not in lines[0]):  # the name alone
        return "no such bucket or object"
    return without_secrets(lines[0].rstrip(".")) if lines else type(error).__name__


def _remedy(url: str, error: BaseException) -> str:
    scheme = url.partition("://")[0].lower()
    scheme = {"s3a": "s3", "gcs": "gs"}.get(scheme, scheme)
    if "Credentials" in type(error).__name__:
        return _CREDENTIALS.get(scheme, "give the credentials of this store")
    if isinstance(error, PermissionError):
        return "check the credentials and what they permit, then run the same command again"
    if isinstance(error, FileNotFoundError):
        return "check the name of the bucket"
    if isinstance(error, NotImplementedError):
        return "give a path, or a URL of another store"
    return "check the network and the endpoint, then run the same command again"
