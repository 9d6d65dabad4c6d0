"""What a Redis URL means, and what none means."""

import re

import pytest

from orchestrator.redis_url import parse_url


@pytest.mark.parametrize(
    ("url", "shown", "options"),
    [
        pytest.param(
            "redis://10.0.0.5",
            "redis://10.0.0.5:6379/0",
            {"host": "10.0.0.5", "port": 6379, "db": 0},
            id="a host",
        ),
        pytest.param(
            "redis://me:p%40ss%2F@db:7000/3",
            "redis://db:7000/3",
            {"host": "db", "port": 7000, "db": 3, "username": "me", "password": "p@ss/"},
            id="a login with escaped letters",
        ),
        pytest.param(
            "redis://[::1]:7000/?db=2",
            "redis://[::1]:7000/2",
            {"host": "::1", "port": 7000, "db": 2},
            id="IPv6 and the database as an option",
        ),
        pytest.param(
            "rediss://db/1?ssl_ca_certs=/ca.pem&ssl_check_hostname=false&ssl_min_version=771",
            "rediss://db:6379/1",
            {
                "host": "db",
                "port": 6379,
                "db": 1,
                "ssl_ca_certs": "/ca.pem",
                "ssl_check_hostname": False,
                "ssl_min_version": 771,
            },
            id="TLS",
        ),
        pytest.param(
            "unix:///run/my%20redis.sock?db=1",
            "unix:///run/my redis.sock?db=1",
            {"path": "/run/my redis.sock", "db": 1},
            id="a unix socket",
        ),
        pytest.param(
            "unix://me:secret@/run/redis.sock",
            "unix:///run/redis.sock?db=0",
            {"path": "/run/redis.sock", "db": 0, "username": "me", "password": "secret"},
            id="a unix socket with a login",
        ),
    ],
)
def test_a_url_means_one_server(url: str, shown: str, options: dict[str, object]) -> None:
    address = parse_url(url)

    assert (address.shown, address.options) == (shown, options)


@pytest.mark.parametrize(
    ("url", "cure"),
    [
        pytest.param("localhost:6379", "redis://localhost:6379/0", id="no scheme"),
        pytest.param("http://localhost", "begins with redis://", id="another scheme"),
        pytest.param("", "begins with redis://", id="nothing"),
        pytest.param("redis://db:port/0", "from 1 to 65535", id="a port of letters"),
        pytest.param("redis://db:70000/0", "from 1 to 65535", id="a port too high"),
        pytest.param("redis://db:0/0", "from 1 to 65535", id="port 0"),
        pytest.param("redis://db/first", "database is a number", id="a database of letters"),
        pytest.param("redis://db/0/1", "database is a number", id="two databases"),
        pytest.param(f"redis://db/{'1' * 5000}", "database is a number", id="a database without end"),
        pytest.param("redis:0", "begins with redis://", id="no slashes"),
        pytest.param("redis://db/-1", "database is a number", id="a negative database"),
        pytest.param("redis://db/0?tiemout=1", "unknown option `tiemout`", id="an unknown option"),
        pytest.param("redis://db/0?ssl_ca_certs=/x", "unknown option `ssl_ca_certs`", id="a TLS option without TLS"),
        pytest.param("redis://db/0?protocol=3", "unknown option `protocol`", id="an option that is ours to set"),
        pytest.param("rediss://db/0?ssl_min_version=tls1.2", "771", id="a TLS version of letters"),
        pytest.param("rediss://db/0?ssl_cert_reqs=maybe", "none, optional or required", id="a TLS rule of its own"),
        pytest.param("redis://db/0#x", "%23", id="a fragment"),
        pytest.param("unix://run/redis.sock", "three slashes", id="a relative socket"),
        pytest.param("unix://", "three slashes", id="no socket"),
        pytest.param("redis+sentinel://a,b/main/0", "planned, not in this version", id="Sentinel"),
        pytest.param("redis+cluster://a,b", "planned, not in this version", id="Cluster"),
    ],
)
def test_a_wrong_url_is_refused_with_its_cure(url: str, cure: str) -> None:
    with pytest.raises(ValueError, match=re.escape(cure)):
        parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("redis://:sec/ret@db:6379/0", id="a slash in it"),
        pytest.param("redis://:sec#ret@db:6379/0", id="a hash in it"),
        pytest.param("redis://:sec?ret@db:6379/0", id="a question mark in it"),
        pytest.param("redis://:secret@db:x/0", id="a wrong port after it"),
        pytest.param("redis://:secret@db/x", id="a wrong database after it"),
        pytest.param("redis:secret@db", id="a wrong scheme before it"),
    ],
)
def test_no_complaint_shows_a_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"\S") as refused:
        parse_url(url)

    assert "sec" not in str(refused.value)
    assert "ret" not in str(refused.value)


def test_no_repr_shows_a_password() -> None:
    assert "secret" not in repr(parse_url("redis://:secret@db/0"))
