"""Every report of a scheduler's faults that was studied, and the tests that hold that ours does not have it.

The table is `schedule_reports.txt`. A test that was written for a report stands in a module beside this one; most
reports are held where the rule itself is tested. A test that is renamed or removed without the table is noticed.
"""

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Row:
    """One fault, told by one or several reports.

    Attributes:
        reports: Project and number of each.
        fault: What happened there.
        held_by: Which tests hold that it does not happen here: `path below tests::name`.
    """

    reports: str
    fault: str
    held_by: tuple[str, ...]


def read(text: str) -> list[Row]:
    """Read the table: a row is a block, its remarks begin with a sign."""
    rows = []
    for block in text.split("\n\n"):
        head, *rest = block.splitlines()
        if not head.startswith("#"):
            reports, _, fault = head.partition(": ")
            tests = (line.strip() for line in rest if not line.startswith(("  +", "  ~")))
            rows.append(Row(reports, fault, tuple(tests)))
    return rows


TABLE = read((Path(__file__).parent / "schedule_reports.txt").read_text(encoding="utf-8"))
NAMED = sorted({test for row in TABLE for test in row.held_by})


@cache
def collected_from(path: Path) -> frozenset[str]:
    """Return the tests of a module that stand where they are collected."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return frozenset(node.name for node in body if isinstance(node, functions) and node.name.startswith("test_"))


@pytest.mark.parametrize("test", NAMED)
def test_what_holds_a_report_exists(test: str) -> None:
    path, _, name = test.partition("::")

    assert name in collected_from(TESTS / path)


def test_every_report_is_held_and_stands_in_the_table_once() -> None:
    assert [row.reports for row in TABLE if not row.held_by] == []
    assert len({row.reports for row in TABLE}) == len(TABLE) > 40
