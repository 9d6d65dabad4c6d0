"""YAML's own traps, and that nothing but a ConfigError ever comes out."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import config
from orchestrator.config import document
from orchestrator.config.model import Job
from orchestrator.core.spec import ClusterSpec, JobSpec
from orchestrator.errors import ConfigError

KEYS = [
    *("cluster", "redis", "node", "defaults", "jobs", "a", "command", "cron", "every", "lease", "ttl", "key"),
    *("file", "signal", "http", "tcp", "as", "cpu", "nofile", "at", "after", "retries", "not_after", "timezone", "<<"),
]
WORDS = [
    *("15s", "x", "~", "0777", "no", "* * * * *", "${X}", "${", "$$", "5", "none", "UTC", "America", "always"),
    *("2026-12-24T18:00", "2026-13-01", "@daily", "a"),
    "/",
    ":1",
    "",
]


def job(text: str) -> JobSpec:
    """Return the one job of a file."""
    return config.parse(text, "f", {}).jobs[0]


@pytest.mark.parametrize("written", ["no", "on", "0777", "1:30", "2026-01-01", "1e3", "0x1F", ".5", "true", "1_000"])
def test_an_unquoted_text_stays_as_it_was_written(written: str) -> None:
    assert job(f"jobs: {{a: {{command: [x, {written}], env: {{X: {written}}}}}}}").argv == ("x", written)
    assert job(f"jobs: {{a: {{command: x, env: {{X: {written}}}}}}}").env == {"X": written}


@pytest.mark.parametrize("written", ["no", "0777", "1:30", "~", "null"])
def test_a_name_stays_as_it_was_written(written: str) -> None:
    text = f"jobs: {{{written}: {{command: x}}}}"

    if written == "~":
        with pytest.raises(ConfigError, match="is no name"):
            job(text)
    elif ":" in written:
        with pytest.raises(ConfigError, match="`1:30` is no name"):
            job(text)
    else:
        assert job(text).name == written


@pytest.mark.parametrize(("written", "meant"), [("true", True), ("True", True), ("false", False), ("FALSE", False)])
def test_truths_are_those_of_yaml_1_2(written: str, meant: bool) -> None:
    assert job(f"jobs: {{a: {{command: x, enabled: {written}}}}}").enabled is meant


def test_anchors_aliases_and_merges_work_as_in_compose_files() -> None:
    text = """
        jobs:
          a: &base
            command: x
            tags: [one]
            stop: {timeout: 5s}
          b:
            <<: *base
            command: y
          c:
            <<: [{command: z}, *base]
    """

    _, b, c = config.parse(text, "f", {}).jobs

    assert (b.argv[-1], b.tags, b.stop.timeout_s) == ("y", ("one",), 5.0)
    assert (c.argv[-1], c.tags) == ("z", ("one",))


def test_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_bytes(b"---\r\njobs:\r\n  a:\r\n    command: |\r\n      one\r\n      two\r\n")

    assert config.load(path, {}).jobs[0].argv[-1] == "one\ntwo\n"


def test_every_place_in_a_document_is_that_of_its_text() -> None:
    text = "jobs:\n  a:\n    tags: [one, 'two']\n"

    read = document.read(text, "f")

    assert read.data == {"jobs": {"a": {"tags": ["one", "two"]}}}
    assert read.complaint(("jobs", "a", "tags"), "", at_key=True).place == (3, 5)
    assert read.complaint(("jobs", "a", "tags", 1), "").place == (3, 17)


def test_the_slow_loader_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML is not everywhere built with libyaml."""

    class Slow(yaml.SafeLoader):
        yaml_implicit_resolvers = {}  # noqa: RUF012 - as in the module

    text = "jobs:\n  a:\n    command: [x, no, 'quoted']\n    retart: 1\n"
    fast = document.read(text, "f")

    monkeypatch.setattr(document, "_Loader", Slow)
    slow = document.read(text, "f")

    assert slow.data == fast.data
    assert places(slow) == places(fast)


def places(read: document.Document) -> list[document.Place]:
    """Return where all keys and values of a document stand."""
    keys = [read.complaint(path, "", at_key=True).place for path in read.keys]
    return keys + [read.complaint(path, "").place for path in read.values]


def nested(scalars: st.SearchStrategy[str]) -> st.SearchStrategy[object]:
    """Return mappings and lists of scalars, with keys that mean something."""
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
        max_leaves=12,
    )


def read_or_refuse(read: Callable[[], ClusterSpec]) -> ClusterSpec | ConfigError:
    """Return what came out; anything but a ConfigError passes through and fails the test."""
    try:
        return read()
    except ConfigError as error:
        return error


@given(st.text(max_size=80) | st.text(alphabet="ab:-[]{}&*!|>'\"%@`,# \n\t<$", max_size=60))
def test_no_text_raises_anything_but_a_config_error(text: str) -> None:
    assert isinstance(read_or_refuse(lambda: config.parse(text, "f", {"X": "x"})), ClusterSpec | ConfigError)


@given(nested(st.sampled_from(WORDS) | st.text(max_size=6)))
def test_no_structure_raises_anything_but_a_config_error(data: object) -> None:
    text = yaml.safe_dump(data, allow_unicode=True).replace("'", "")

    assert isinstance(read_or_refuse(lambda: config.parse(text, "f", {"X": "x"})), ClusterSpec | ConfigError)


@given(nested(st.sampled_from(WORDS)), st.sampled_from(sorted(Job.fields_by_key())))
def test_no_value_of_a_job_raises_anything_but_a_config_error(value: object, key: str) -> None:
    text = yaml.safe_dump({"jobs": {"a": {"command": "x", key: value}}})

    assert isinstance(read_or_refuse(lambda: config.parse(text, "f", {"X": "x"})), ClusterSpec | ConfigError)


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_a_config_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "jobs.yaml"
    path.write_bytes(content)

    assert isinstance(read_or_refuse(lambda: config.load(path, {})), ClusterSpec | ConfigError)
