"""The systemd unit, held against systemd itself where there is one."""

import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[1] / "systemd/orchestrator.service"
MOST_EXPOSED = 40
"""Tenths of systemd's exposure level, 0 to 100; a unit without any hardening has 96."""

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def service() -> dict[str, str]:
    """Return the keys of the [Service] section."""
    parser = ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # configparser documents this way to keep capitals
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    return dict(parser["Service"])


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit with a command that exists on this machine: `verify` refuses any other."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text(encoding="utf-8").replace("/usr/local/bin/orchestrator", sys.executable))
    return path


@needs_systemd
def test_systemd_has_nothing_to_say_about_the_unit(installed: Path) -> None:
    """It ends with 0 even where it ignores a key, so any word of it counts."""
    verify = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(installed)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    about_us = [line for line in (verify.stdout + verify.stderr).splitlines() if UNIT.name in line]
    assert about_us == []


@needs_systemd
def test_the_unit_is_hardened(installed: Path) -> None:
    security = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(installed)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert security.returncode == 0, security.stdout


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("Type", "notify", id="systemd waits until the node is up"),
        pytest.param("KillMode", "mixed", id="the node stops its jobs itself"),
        pytest.param("Restart", "on-failure", id="a failed node comes back"),
        pytest.param("RestartPreventExitStatus", "78", id="but not with a wrong configuration"),
        pytest.param("Delegate", "yes", id="each run may have a cgroup"),
    ],
)
def test_the_unit_promises_what_the_node_relies_on(key: str, value: str) -> None:
    assert service()[key] == value


def test_systemd_waits_longer_than_a_job_may_take_to_stop_by_default() -> None:
    assert int(service()["TimeoutStopSec"].removesuffix("s")) > 10 + 5
