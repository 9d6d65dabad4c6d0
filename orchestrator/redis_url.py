"""What a Redis URL means; validated here, since redis-py takes much nonsense without a word.

One reader for `jobs.yaml` and for the store: what `validate` calls good, `up` takes.
Imports no redis and opens nothing. A password stands in no message and in no repr.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

LAST_PORT = 65535
LONGEST_NUMBER = 9
"""Digits of a database; Python refuses to read some thousands of them."""
NO_URL = "a URL begins with redis://, rediss:// or unix://, as in redis://localhost:6379/0"
PLANNED_SCHEMES = ("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname", "ssl_cert_reqs", "ssl_min_version")


@dataclass(frozen=True, slots=True)
class Address:
    """One server.

    Attributes:
        scheme: redis | rediss | unix.
        shown: The URL for people, without user and password.
        options: For the connection: host and port or path, db, username, password, ssl_*.
    """

    scheme: str
    shown: str
    options: dict[str, object] = field(repr=False)


def parse_url(url: str) -> Address:
    """Read a Redis URL.

    Raises:
        ValueError: It means nothing; says what to write instead, never what the password is.
    """
    if "://" not in url:
        raise ValueError(NO_URL)
    if (scheme := url.partition("://")[0].lower()) in PLANNED_SCHEMES:  # their host:port,host:port is no port at all
        raise ValueError(f"{scheme}:// is planned, not in this version; name one server with redis://host:6379/0")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(
            f"the port must be a number from 1 to {LAST_PORT}"
            " (in a password write / as %2F, # as %23, ? as %3F, @ as %40)"
        ) from None
    if parts.fragment:
        raise ValueError("# ends a URL; in a password write it as %23")
    login: dict[str, object] = {}
    if parts.username:
        login["username"] = unquote(parts.username)
    if parts.password:
        login["password"] = unquote(parts.password)
    match parts.scheme:
        case "unix":
            return _unix(parts, login)
        case "redis" | "rediss":
            return _tcp(parts, port, login)
        case _:
            raise ValueError(NO_URL)


def _tcp(parts: SplitResult, port: int | None, login: dict[str, object]) -> Address:
    host = unquote(parts.hostname or "localhost")
    port = 6379 if port is None else port
    if port == 0:
        raise ValueError(f"the port must be a number from 1 to {LAST_PORT}")
    tls = parts.scheme == "rediss"
    given = _query(parts.query, ("db", *TLS_OPTIONS) if tls else ("db",))
    db = _database(given.pop("db", "") or parts.path.strip("/") or "0")
    options = login | {"host": host, "port": port, "db": db} | _tls_options(given)
    at = f"[{host}]" if ":" in host else host
    return Address(parts.scheme, f"{parts.scheme}://{at}:{port}/{db}", options)


def _unix(parts: SplitResult, login: dict[str, object]) -> Address:
    # unix://run/redis.sock would silently mean /redis.sock on a host named run.
    if parts.netloc.rpartition("@")[2] or not parts.path.startswith("/") or parts.path == "/":
        raise ValueError("unix:// wants an absolute path, as in unix:///run/redis.sock?db=0 (three slashes)")
    path = unquote(parts.path)
    db = _database(_query(parts.query, ("db",)).get("db", "0"))
    return Address("unix", f"unix://{path}?db={db}", login | {"path": path, "db": db})


def _query(query: str, known: Sequence[str]) -> dict[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name in given:
        if name not in known:
            raise ValueError(f"unknown option `{name}` after the ?; known here: {', '.join(known)}")
    return given


def _database(text: str) -> int:
    # redis-py takes /abc for database 0 without a word.
    if not (text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER):
        raise ValueError("the database is a number, as in redis://localhost:6379/0 (in a password write / as %2F)")
    return int(text)


def _tls_options(given: dict[str, str]) -> dict[str, object]:
    options: dict[str, object] = dict(given)
    if "ssl_check_hostname" in given:
        options["ssl_check_hostname"] = given["ssl_check_hostname"].lower() in ("1", "true", "yes", "on")
    if "ssl_min_version" in given:
        if not given["ssl_min_version"].isdigit():
            raise ValueError("ssl_min_version is a number: 771 for TLS 1.2, 772 for TLS 1.3")
        options["ssl_min_version"] = int(given["ssl_min_version"])
    if given.get("ssl_cert_reqs", "required") not in ("none", "optional", "required"):
        raise ValueError("ssl_cert_reqs is none, optional or required")
    return options
