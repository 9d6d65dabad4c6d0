"""docs/coming-from-supervisor.md against Supervisor's own list of options, and against what we really take.

The list is a copy, with its version, in tests/fixtures: the page must not need Supervisor to be right.
"""

import configparser
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from orchestrator import config
from orchestrator.cli import orchestrator as command_line
from orchestrator.config import model
from orchestrator.config.entry import Entry
from orchestrator.core.spec import JobSpec, OnCrashLoop, OnRedisLoss, OnUnhealthy, Restart, Scope
from orchestrator.errors import ConfigError
from tests.test_docs import blocks, code_of, section, table

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/coming-from-supervisor.md").read_text(encoding="utf-8")
LISTED = [
    line.rsplit(" ", 1)
    for line in (ROOT / "tests/fixtures/supervisor-4.3.0.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
"""Each option with its section, as in `[program:x]`; each action with `supervisorctl`."""
SECTIONS = list(dict.fromkeys(title for title, _ in LISTED))

PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
SNIPPETS = sorted({code for code in code_of(PROSE) if re.match(r"[a-z_]+: ", code)})
WORD = re.compile(r"[a-z_]+(?:\.[a-z_]+)*")
FOREIGN = {
    *("memmon", "httpok", "crashmail", "crashsms", "fatalmailbatch"),  # superlance
    *("true", "false", "unexpected"),  # values of `autorestart`
    *("kill", "mv", "ps", "rm", "setsid"),
    *("name", "name.1", "name.2"),  # instances
    *("hook.failed", "jobs.yaml", "node.lock", "supervisord.conf", "supervisorctl"),
}


def keys_of(entry: type[Entry], prefix: str = "") -> Iterator[str]:
    """Yield the keys of a mapping and of those below it, `stop` and `stop.timeout` alike."""
    for key in entry.fields_by_key():
        yield prefix + key
        if below := entry.below(key):
            yield from keys_of(below, f"{prefix}{key}.")


OURS = {*keys_of(model.Job), *keys_of(model.File)}
VALUES = {str(value) for words in (Restart, Scope, OnRedisLoss, OnCrashLoop, OnUnhealthy) for value in words}
COMMANDS = set(command_line.list_commands(click.Context(command_line)))
VALUES |= {"merge", "separate", "journal", "none"}


def understood(snippet: str) -> bool:
    """Say whether a line of YAML is taken by our own loader, in a job or else in the file."""
    in_a_job = f"jobs:\n  some:\n    command: x\n    {snippet}\n"
    in_the_file = f"{snippet}\njobs: {{some: {{command: x}}}}\n"
    for text in (in_a_job, in_the_file):
        try:
            config.parse(text, "jobs.yaml", {})
        except ConfigError:
            continue
        return True
    return False


@pytest.mark.parametrize("title", SECTIONS)
def test_each_option_of_supervisor_has_its_row_and_none_is_invented(title: str) -> None:
    heading = f"`{title}`"

    rows = [code_of(row[0])[0] for row in table(section(PAGE, heading))]

    assert sorted(rows) == sorted(option for of, option in LISTED if of == title)


@pytest.mark.parametrize("title", SECTIONS)
def test_what_has_no_counterpart_says_why(title: str) -> None:
    rows = table(section(PAGE, f"`{title}`"))

    assert [option for option, here, why in rows if here == "no" and not re.match(r"Because \w+", why)] == []
    assert [option for option, here, _ in rows if not here] == []


def test_every_key_that_the_page_names_is_one_of_ours_or_of_supervisor() -> None:
    known = OURS | VALUES | FOREIGN | COMMANDS | {option for _, option in LISTED}
    named = {code for code in code_of(PROSE) if WORD.fullmatch(code)}

    assert named - known == set()


def test_every_key_that_stands_in_for_an_option_is_one_of_ours() -> None:
    rows = [row for title in SECTIONS for row in table(section(PAGE, f"`{title}`"))]
    words = {code for _, here, _ in rows for code in code_of(here) if WORD.fullmatch(code)}

    assert words - OURS - FOREIGN == set()


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_every_line_of_yaml_on_the_page_is_taken(snippet: str) -> None:
    assert understood(snippet)


# --- the example ------------------------------------------------------------------------------------


def theirs() -> configparser.RawConfigParser:
    """Return the example's supervisord.conf."""
    parser = configparser.RawConfigParser(inline_comment_prefixes=(" ;", "\t;"))
    parser.read_string(blocks(PAGE, "ini")[0])
    return parser


def ours(name: str) -> list[JobSpec]:
    """Return the instances of a job of the example's jobs.yaml."""
    return [job for job in config.parse(blocks(PAGE, "yaml")[0], "/srv/jobs.yaml", {}).jobs if job.job == name]


def test_the_example_uses_options_that_supervisor_has() -> None:
    known = {(title.strip("[]").removesuffix(":x"), option) for title, option in LISTED}
    used = {(title.partition(":")[0], option) for title in theirs().sections() for option in theirs()[title]}
    of_a_program = {("program", option) for kind, option in used if kind == "eventlistener"}

    assert {pair for pair in used - known if ("program", pair[1]) not in of_a_program} == set()


def test_the_example_has_a_job_for_each_program() -> None:
    programs = {title.partition(":")[2] for title in theirs().sections() if title.startswith("program:")}

    assert {job.job for job in config.parse(blocks(PAGE, "yaml")[0], "/srv/jobs.yaml", {}).jobs} == programs


@pytest.mark.parametrize("name", ["web", "worker", "shipper"])
def test_the_example_means_the_same_on_both_sides(name: str) -> None:
    program, jobs = theirs()[f"program:{name}"], ours(name)
    first = jobs[0]

    assert len(jobs) == program.getint("numprocs", 1)
    assert first.cwd == program.get("directory")
    assert first.user == program.get("user")
    assert first.stop.timeout_s == program.getint("stopwaitsecs", 10)
    assert first.stop.signal == f"SIG{program.get('stopsignal', 'TERM')}"
    assert first.success_exit_codes == {int(code) for code in program.get("exitcodes", "0").split(",")}
    assert (first.restart is Restart.ON_FAILURE) == (program.get("autorestart") == "unexpected")
    assert ("shop" in first.tags) == (name in theirs()["group:shop"]["programs"].split(","))


def test_the_example_s_log_is_as_large_on_both_sides() -> None:
    program, (web,) = theirs()["program:web"], ours("web")

    assert web.log.file == program["stdout_logfile"]
    assert f"{web.log.max_bytes // 10**6}MB" == program["stdout_logfile_maxbytes"]
    assert web.log.backups == program.getint("stdout_logfile_backups")
    assert web.max_rss_bytes == 800_000_000
