"""The rules of the house that no tool knows."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "orchestrator"
MODULES = sorted(PACKAGE.rglob("*.py"))
CORE = sorted((PACKAGE / "core").glob("*.py"))
LAUNCHED = ["orchestrator.runs.launcher", "orchestrator.runs.leash"]
"""What runs once a run and must stay small."""

LONGEST_FILE = 450
LONGEST_FUNCTION = 60
CORE_MAY_IMPORT = frozenset(
    {
        *("bisect", "calendar", "collections", "collections.abc", "dataclasses", "datetime", "difflib", "enum"),
        *(
            "functools",
            "hashlib",
            "heapq",
            "itertools",
            "json",
            "math",
            "operator",
            "re",
            "typing",
            "zlib",
            "zoneinfo",
            "cronsim",
        ),
        *("orchestrator.core", "orchestrator.errors"),
    }
)
FORBIDDEN_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "manager", "misc", "base"})
FORBIDDEN_WORDS = re.compile(
    r"\b(TODO|FIXME|XXX|HACK|p[y]pi\.org|p[y]thonhosted\.org)\b|/r[o]ot/|/w[o]rk/|\.\./s[h]ared"
)
"""Left-overs, machines' own paths, and addresses that only one network has."""


def relative(path: Path) -> str:
    """Return the name of a case."""
    return str(path.relative_to(ROOT))


def tree(path: Path) -> ast.Module:
    """Parse a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> set[str]:
    """Return the modules that a module imports."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def texts() -> list[Path]:
    """Return the files that people read and tools run, but those that say what is forbidden."""
    suffixes = {".py", ".lua", ".md", ".yaml", ".toml", ".txt", ".json", ".service"}
    folders = ["orchestrator", "tests", "docs", "systemd", ".ci", "benchmarks"]
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    on_top = [path for path in ROOT.iterdir() if path.is_file() and path.suffix in suffixes]
    return sorted({*inside, *on_top, ROOT / "Makefile", ROOT / ".ci/run"} - {Path(__file__)})


@pytest.mark.parametrize("path", CORE, ids=relative)
def test_the_core_imports_only_what_computes(path: Path) -> None:
    allowed = {name for name in imports(path) if name in CORE_MAY_IMPORT or name.startswith("orchestrator.core.")}

    assert imports(path) - allowed == set()


@pytest.mark.parametrize("path", CORE, ids=relative)
def test_the_core_asks_nobody_for_the_time(path: Path) -> None:
    asked = [
        node.attr
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and node.attr in {"now", "utcnow", "today"} and is_a_date(node.value)
    ]

    assert asked == []


def is_a_date(node: ast.expr) -> bool:
    """Say whether an expression names a class of `datetime`; `moment.now` would be a field of ours."""
    return getattr(node, "id", getattr(node, "attr", "")) in {"date", "datetime"}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(tree(path))


@pytest.mark.parametrize("path", [*MODULES, *sorted((ROOT / "tests").rglob("*.py"))], ids=relative)
def test_a_file_can_be_read_in_one_sitting(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()

    assert len(lines) <= LONGEST_FILE


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_function_can_be_seen_at_once(path: Path) -> None:
    functions = [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    assert [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION] == []


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_file_is_named_after_what_it_is(path: Path) -> None:
    assert not FORBIDDEN_NAMES & set(path.with_suffix("").relative_to(PACKAGE).parts)


@pytest.mark.parametrize("path", texts(), ids=relative)
def test_a_file_contains_no_left_overs(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()

    assert [line for line in lines if FORBIDDEN_WORDS.search(line)] == []


def test_a_suppressed_finding_has_a_reason() -> None:
    bare = re.compile(r"#\s*(noqa(: [A-Z0-9, ]+)?|type: ignore(\[[a-z, -]+\])?)\s*$")

    found = [
        f"{relative(path)}: {line.strip()}"
        for path in MODULES
        for line in path.read_text(encoding="utf-8").splitlines()
        if bare.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("module", LAUNCHED)
def test_the_launched_side_loads_the_standard_library_only(module: str) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {module};"
        "print(*sorted({name.split('.')[0] for name in sys.modules} - sys.stdlib_module_names))"
    )

    loaded = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True, timeout=30
    ).stdout.split()

    assert set(loaded) <= {"__main__", "orchestrator"}


def test_reading_a_jobs_yaml_loads_no_redis_and_no_screen() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import orchestrator.config; print(*sys.modules)"

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    ).stdout.split()

    assert {"redis", "rich", "asyncio"} & set(loaded) == set()
