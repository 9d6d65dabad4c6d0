"""Where something answers, as it is written: Redis, and what a health check asks.

As in `values.py`: a reader takes what `document.py` gives and returns a value, or raises `ValueError` with what
is wrong and what to write instead. A URL of Redis is never repeated, since it holds secrets.
"""

from urllib.parse import urlsplit

from pydantic import ValidationInfo

from orchestrator.config.values import expanded, not_empty
from orchestrator.redis_url import LAST_PORT, parse_url

_NO_PORT = f"must be a URL with a host and a port from 1 to {LAST_PORT}"
_EXAMPLE = "write it such as http://127.0.0.1:8000/healthz"


def redis_url(value: object, info: ValidationInfo) -> str | None:
    """Read the URL of a Redis; None where its variables came out empty."""
    read = expanded(not_empty(value), info)
    if read:
        parse_url(read)
    return read or None


def http_url(value: object, info: ValidationInfo) -> str:
    """Read a URL that a health check gets."""
    read = expanded(value, info)
    if not read.isascii() or not read.isprintable() or " " in read:
        raise ValueError(f"blanks and letters beyond ASCII stand in a URL as %XX; {_EXAMPLE}")
    try:
        parts = urlsplit(read)
        no_host = parts.scheme not in {"http", "https"} or not parts.hostname
        no_port = parts.port == 0
    except ValueError:  # brackets without an IPv6 address between them, or a port out of its range
        raise ValueError(f"{_NO_PORT}; {_EXAMPLE}") from None
    if no_port:
        raise ValueError(f"{_NO_PORT}; {_EXAMPLE}")
    if no_host:
        raise ValueError(f"must be a URL of http or https with a host; {_EXAMPLE}")
    if parts.username is not None:
        raise ValueError("a user and a password are not sent by a health check; remove them")
    return read


def tcp_address(value: object, info: ValidationInfo) -> str:
    """Read the `host:port` that a health check connects to; an IPv6 address stands in brackets."""
    read = expanded(value, info)
    host, _, port = read.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or "/" in bare or " " in bare or (":" in bare) != (bare != host):
        raise ValueError("write host:port such as 127.0.0.1:5432 or [::1]:5432")
    if not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) <= LAST_PORT:
        raise ValueError(f"the port must be a number from 1 to {LAST_PORT}, as in 127.0.0.1:5432")
    return read
