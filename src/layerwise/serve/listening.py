"""The server's socket: bound before anything slow, and shared by all its processes."""

import socket

from layerwise.errors import InputError
from layerwise.serve.settings import ServeSettings

BACKLOG = 2048  # connections that wait to be accepted


def bound_socket(settings: ServeSettings) -> socket.socket:
    """Bind a socket to the server's address; it refuses connections until `listen` is called."""
    try:
        infos = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = infos[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise not_possible(settings, error) from error
    return bound


def not_possible(settings: ServeSettings, error: OSError) -> InputError:
    """The error of an address that cannot be bound."""
    return InputError(
        f"{settings.host}:{settings.port} cannot be listened on: {error.strerror or error}; give another --port or "
        f"--host"
    )


def address_of(listening: socket.socket) -> str:
    """Return the URL of a socket, such as http://127.0.0.1:8000."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
