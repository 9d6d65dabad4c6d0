"""`--trials N`, and the table of the times that were measured: a plugin, since xdist's controller never collects.

A test that takes `measure` is done N times.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest

TRIALS = 2
"""What CI can wait for."""

Measure = Callable[[str, float], None]
"""Note how long something took, in seconds, under the name of the fault."""

_MEASURED = "measured"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--trials`."""
    parser.addoption("--trials", type=int, default=TRIALS, metavar="N", help="How often each measured fault is done.")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Do what measures N times."""
    if "measure" in metafunc.fixturenames:
        trials = metafunc.config.getoption("trials")
        metafunc.parametrize("trial", range(trials), ids=lambda trial: f"trial {trial + 1}")


@pytest.fixture
def measure(record_property: Callable[[str, object], None], trial: int) -> Measure:
    """Return what notes a time; trials of one name share a row of the table."""
    assert trial >= 0
    return lambda fault, took_s: record_property(_MEASURED, [fault, took_s])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    rows: dict[str, list[float]] = defaultdict(list)
    for fault, took_s in _measured(terminalreporter):
        rows[fault].append(took_s)
    if not rows:
        return
    terminalreporter.section("seconds from the fault to the next run")
    width = max(map(len, rows))
    terminalreporter.write_line(f"{'':{width}}  trials     min  median     max")
    for fault, times in sorted(rows.items()):
        numbers = "".join(f"{number:8.3f}" for number in (min(times), statistics.median(times), max(times)))
        terminalreporter.write_line(f"{fault:{width}}  {len(times):6d}{numbers}")


def _measured(terminalreporter: pytest.TerminalReporter) -> Iterator[tuple[str, float]]:
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            if report.when == "call":
                for name, value in report.user_properties:
                    if name == _MEASURED:
                        yield value[0], value[1]
