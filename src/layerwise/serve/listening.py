"""The socket of a server: opened before anything slow, and shared by all its processes."""

import socket

from layerwise.errors import InputError
from layerwise.serve.settings import ServeSettings

BACKLOG = 2048  # connections that wait to be accepted


def listen(settings: ServeSettings) -> socket.socket:
    """A socket that listens; a port in use is one line."""
    try:
        infos = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = infos[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        raise InputError(
            f"{settings.host}:{settings.port} cannot be listened on: {error.strerror or error}; give another --port or "
            f"--host"
        ) from error
    return listening


def address_of(listening: socket.socket) -> str:
    """Such as http://127.0.0.1:8000."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
