"""The pages against the code: what they name exists, and what exists they name.

Pages are written by hand and so become wrong by themselves; here is what a machine can notice of it.
"""

import ast
import json
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest

from orchestrator import config, errors
from orchestrator.cli import orchestrator as command_line
from orchestrator.core.messages import RunEnded
from orchestrator.core.nouns import Moment, NodeName, RunId, Token
from orchestrator.core.records import record_of
from orchestrator.core.run import Reason, Run, child_environment
from orchestrator.core.snapshot import ClusterView, JobView, NodeView, State
from orchestrator.core.timing import LeaseTiming
from orchestrator.runs.order import NEVER_INHERITED
from orchestrator.view.entries import EntryView, HistoryView, OpenView
from orchestrator.view.lease import LeaseView
from tests.simulation.mutants import MUTANTS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "orchestrator"
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
README = PAGES[0].read_text(encoding="utf-8")
ARCHITECTURE = PAGES[1].read_text(encoding="utf-8")
GUARANTEES = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
OPERATIONS = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
LONGEST_README = 250

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
IN_CODE = re.compile(r"`((?:[\w.]+/)*\w+\.(?:py|lua|yaml|md))`(?: `([A-Za-z_][\w.]*)`)?")
"""A file below the package, and after it a class, a function or a method in it."""
EVENT = re.compile(r"[a-z]+\.[a-z_]+")


def name_of(page: Path) -> str:
    """Return the name of a case."""
    return str(page.relative_to(ROOT))


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language; "" is what is typed into a shell."""
    return [block for tag, block in FENCE.findall(text) if tag == language]


def section(text: str, title: str) -> str:
    """Return what stands below a heading, down to the next of its level."""
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def table(text: str) -> list[list[str]]:
    """Return the rows of the first table of a text, without its titles."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows[2:]]


def code_of(cell: str) -> list[str]:
    """Return what stands in backticks."""
    return INLINE.findall(cell)


def typed(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of ours on a page, with its options."""
    lines = [line for block in blocks(text, "") for line in block.splitlines()]
    for code in [*lines, *INLINE.findall(FENCE.sub("", text))]:
        said = re.match(r"(?:\$ )?(?:\.venv/bin/)?orchestrator ([a-z]+)\b([^#]*)", code)
        if said:
            yield said[1], re.findall(r"(?<!\S)(--?[a-z][\w-]*)", re.sub(r'"[^"]*"', "", said[2]))


def options_of(name: str) -> set[str]:
    """Return the options of one of our commands."""
    command = command_line.get_command(click.Context(command_line), name)
    assert command is not None, f"orchestrator {name}"
    return {option for parameter in command.params for option in parameter.opts} | {"--help"}


def resolves(file: str, name: str) -> bool:
    """Say whether a file below the package has a definition of that name (`Class.method` or `function`)."""
    body = ast.parse((PACKAGE / file).read_text(encoding="utf-8")).body
    for part in name.split("."):
        found = next((node for node in body if part in defined(node)), None)
        if found is None:
            return False
        body = found.body if isinstance(found, ast.ClassDef) else []
    return True


def defined(node: ast.stmt) -> set[str]:
    """Return the names that a statement defines."""
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return {node.name}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Assign(targets=[ast.Name(id=name)]):
            return {name}
        case _:
            return set()


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def house() -> set[str]:
    """Return the files that the house of ARCHITECTURE.md shows, relative to the package."""
    lines = blocks(section(ARCHITECTURE, "The house"), "")[0].splitlines()[1:]
    files: set[str] = set()
    above: list[str] = []
    for line in lines:
        depth = (len(line) - len(line.lstrip())) // 2 - 1
        name = line.split()[0]
        above = [*above[:depth], name]
        files |= set() if name.endswith("/") else {"".join(above)}
    return files


def said_events() -> dict[str, set[str]]:
    """Return every log event of the code with its fields."""
    events: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        module = ast.parse(path.read_text(encoding="utf-8"))
        for call in ast.walk(module):
            if isinstance(call, ast.Call) and call.args:
                of_us = getattr(call.func, "id", getattr(call.func, "attr", "")) in ("Say", "_say")
                for event in filter(EVENT.fullmatch, texts_of(call.args[0], module) if of_us else ()):
                    events.setdefault(event, set()).update(said_fields(call, module))
    return events


def texts_of(value: ast.expr, module: ast.Module) -> set[str]:
    """Return the texts that an argument may be: itself, or what its name stands for (`"a.b" if x else "c.d"`)."""
    if isinstance(value, ast.Constant):
        return {str(value.value)}
    walked = [node for assigned in assigned_to(value, module) for node in ast.walk(assigned)]
    return {str(node.value) for node in walked if isinstance(node, ast.Constant)}


def said_fields(call: ast.Call, module: ast.Module) -> set[str]:
    """Return the fields that a call gives its event: `Say("x.y", {...})`, or a job's own `self._say("x.y", a=...)`."""
    if isinstance(call.func, ast.Name):
        return keys_in(call.args[1]) if len(call.args) > 1 else set()
    words = {word.arg for word in call.keywords if word.arg}
    for word in call.keywords:
        if word.arg is None:
            words |= {key for value in assigned_to(word.value, module) for key in keys_in(value)}
    return {"job", *words} - {"level"}


def assigned_to(name: ast.expr, module: ast.Module) -> list[ast.expr]:
    """Return what is assigned to a name anywhere in a module; nothing if it is no name."""
    assignments = [node for node in ast.walk(module) if isinstance(node, ast.Assign)]
    return [node.value for node in assignments if getattr(node.targets[0], "id", "") == getattr(name, "id", None)]


def keys_in(node: ast.expr) -> set[str]:
    """Return the keys of all dicts in an expression."""
    dicts = [each for each in ast.walk(node) if isinstance(each, ast.Dict)]
    return {str(key.value) for each in dicts for key in each.keys if isinstance(key, ast.Constant)}


def a_run_that_ended() -> tuple[dict[str, object], dict[str, str]]:
    """Return the record and the environment of some run of a cron."""
    spec = config.parse("jobs: {invoices: {every: 1h, command: x}}", "jobs.yaml", {}).jobs[0]
    run = Run(RunId("invoices@1"), Token(1), 3_600_000, Reason.SCHEDULE, started=Moment(1.0, 3600.0))
    ended = RunEnded(spec.name, run.id, exit_code=0, signal=0, error="", cause="exit", elapsed_s=1.0)
    node = NodeName("alpha")
    return record_of(spec, run, ended, node, Moment(2.0, 3601.0), order_ms=0), dict(child_environment(spec, run, node))


def names(shape: type[Any]) -> list[str]:
    """Return the names of a view's fields, in their order."""
    return [each.name for each in fields(shape)]


# --- what can be typed ------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_and_option_on_a_page_exists(page: Path) -> None:
    unknown = [
        f"orchestrator {name} {option}"
        for name, options in typed(page.read_text(encoding="utf-8"))
        for option in options
        if option not in options_of(name)
    ]

    assert unknown == []


def test_the_readme_shows_each_command_that_looks_or_orders() -> None:
    looks = {"validate", "status", "top", "lease", "next", "history", "logs"}
    orders = {"up", "reload", "stop", "start", "trigger", "pause", "resume"}

    assert looks | orders <= {name for name, _ in typed(README)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_an_option_that_stands_alone_belongs_to_some_command(page: Path) -> None:
    known = {option for name in command_line.list_commands(click.Context(command_line)) for option in options_of(name)}
    alone = [
        option
        for code in INLINE.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
        for option in re.findall(r"^--[a-z][\w-]*", code)
    ]

    assert set(alone) <= known


@pytest.mark.parametrize("text", blocks(README, "yaml"), ids=lambda text: text.splitlines()[0])
def test_a_jobs_yaml_of_the_readme_is_sound(text: str) -> None:
    assert config.parse(text, "jobs.yaml", {}).jobs


def test_the_sql_of_the_readme_lets_newer_tokens_through_and_older_ones_not() -> None:
    *setup, update = blocks(README, "sql")[0].split(";\n")[:3]
    store = sqlite3.connect(":memory:")
    for statement in setup:
        store.execute(statement)

    rows = [store.execute(update, {"token": token}).rowcount for token in (7, 7, 9, 8)]

    store.close()
    assert rows == [1, 1, 1, 0]


def test_the_readme_can_be_read_in_one_sitting() -> None:
    assert len(README.splitlines()) < LONGEST_README


# --- what is where ----------------------------------------------------------------------------------


def test_the_house_shows_every_file_of_the_package() -> None:
    files = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.*") if "__pycache__" not in path.parts}

    assert house() == files


def test_every_place_that_the_architecture_names_exists() -> None:
    gone = [
        f"{file} {name}"
        for file, name in IN_CODE.findall(ARCHITECTURE)
        if not ((PACKAGE / file).is_file() and (not name or file.endswith(".lua") or resolves(file, name)))
        and not any(ROOT.glob(f"tests/**/{Path(file).name}"))
    ]

    assert gone == []


def test_each_question_of_where_has_an_answer() -> None:
    rows = table(section(ARCHITECTURE, "Where is ...?"))

    assert [what for what, where in rows if not IN_CODE.search(where)] == []


def test_each_rule_of_the_protocol_has_a_mutant_or_a_test_and_no_mutant_is_forgotten() -> None:
    rules = table(section(ARCHITECTURE, "The rules of the protocol"))
    named = {name for *_, held in rules for name in code_of(held)}

    assert [rule for rule, _, held in rules if not ("mutant" in held or "tests/" in held)] == []
    assert named == {mutant.name for mutant in MUTANTS}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"tests/[\w/]+(?:\.[a-z]+)?", page.read_text(encoding="utf-8"))

    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_within_the_project_resolves(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for link in re.findall(r"\]\((?!https?://)([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert broken == []


# --- what scripts rely on ---------------------------------------------------------------------------


def test_every_log_event_is_documented_with_its_fields_and_no_other_is() -> None:
    rows = table(section(OPERATIONS, "Log events"))

    assert {code_of(event)[0]: set(code_of(said)) for event, said, *_ in rows} == said_events()


def test_every_state_is_documented() -> None:
    assert {code_of(state)[0] for state, *_ in table(section(OPERATIONS, "States"))} == {state.value for state in State}


def test_every_exit_status_is_documented() -> None:
    tree: list[type[errors.OrchestratorError]] = [errors.OrchestratorError, *errors.OrchestratorError.__subclasses__()]
    of_a_shell = {0, 130}

    documented = {int(status) for status, *_ in table(section(OPERATIONS, "Exit statuses"))}

    assert documented == {error.exit_status for error in tree} | of_a_shell


def test_the_shape_of_status_json_is_documented() -> None:
    shown = json.loads(blocks(section(OPERATIONS, "`status --json`"), "json")[0])
    record, _ = a_run_that_ended()

    assert list(shown) == names(ClusterView)
    assert list(shown["nodes"][0]) == names(NodeView)
    assert list(shown["jobs"][0]) == names(JobView)
    assert list(shown["jobs"][0]["last"]) == list(record)


def test_the_shape_of_history_json_is_documented() -> None:
    shown = json.loads(blocks(section(OPERATIONS, "`history --json`"), "json")[0])

    assert list(shown) == names(HistoryView)
    assert [list(each) for each in shown["open"]] == [names(OpenView)]
    assert [list(each) for each in shown["runs"]] == [names(EntryView)]


def test_the_shape_of_lease_json_is_documented() -> None:
    shown = json.loads(blocks(section(OPERATIONS, "`lease --json`"), "json")[0])

    assert list(shown) == names(LeaseView)


def test_the_environment_of_a_child_is_documented() -> None:
    _, environment = a_run_that_ended()
    text = section(OPERATIONS, "What a child finds")

    assert {code_of(name)[0] for name, _ in table(text)} == set(environment)
    assert [pattern for pattern in NEVER_INHERITED if f"`{pattern}`" not in text] == []


@pytest.mark.parametrize(
    "row", table(section(GUARANTEES, "The arithmetic of a lease")), ids=lambda row: f"ttl {row[0]}"
)
def test_the_numbers_of_a_lease_are_documented(row: list[str]) -> None:
    timing = LeaseTiming.scaled(float(row[0]))
    deadlines = timing.deadlines(0.0)

    numbers = [
        *(timing.ttl_s, timing.heartbeat_s, timing.request_timeout_s, timing.step_down_grace_s),
        *(timing.kill_time_s, timing.margin_s, deadlines.term_at, deadlines.kill_at, timing.ends_at(0.0)),
    ]
    assert row == [f"{round(number, 2):g}" for number in numbers]
