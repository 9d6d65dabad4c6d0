"""What a program finds when it begins, and what is said when it cannot."""

from pathlib import Path

import pytest

from orchestrator.runs.first_process import MAX_REPORT_BYTES, explain
from tests.runs.first_process import Case, Seen, seen, shell


def test_stdout_and_stderr_go_where_they_are_sent_and_nothing_comes_in() -> None:
    found = shell("cat; echo out; echo err >&2; exit 3")

    assert found == Seen(status=3, out="out\n", err="err\n", why="", size=0)


def test_it_has_a_session_of_its_own_and_no_signal_is_ignored_or_blocked() -> None:
    pid, stat, *lines = shell("echo $$; exec cat /proc/self/stat /proc/self/status").out.splitlines()
    status = dict(line.split(":\t", 1) for line in lines)

    session = stat.rpartition(")")[2].split()[3]
    assert session == pid
    libc_s_own = 0b11 << 31  # 32 and 33, out of a program's reach: glibc's posix_spawn leaves them ignored
    assert (int(status["SigBlk"], 16), int(status["SigIgn"], 16) & ~libc_s_own) == (0, 0)


def test_it_is_in_the_cgroup_of_its_run_before_it_is_anything_else(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").touch()  # to be written to is all that this file need do

    told = shell("true", cgroup=str(tmp_path), cwd="/no/such").why

    assert (tmp_path / "cgroup.procs").read_text() == "0"
    assert told.startswith("working directory")


def test_its_program_is_looked_for_on_its_own_path(tmp_path: Path) -> None:
    tmp_path.joinpath("here").write_text("#!/bin/sh\necho found\n")
    tmp_path.joinpath("here").chmod(0o755)

    assert seen(Case(("here",), env={"PATH": str(tmp_path)})).out == "found\n"
    assert seen(Case(("here",), env={"PATH": ""}, cwd=str(tmp_path))).out == "found\n"
    assert seen(Case(("here",))).why == "no such program on its PATH: 'here'"
    assert seen(Case(("echo", "by default"), env={})).out == "by default\n"


def test_what_cannot_be_executed_does_not_hide_what_can_further_down_its_path(tmp_path: Path) -> None:
    for place, mode in (("first", 0o644), ("second", 0o755)):
        (tmp_path / place).mkdir()
        (tmp_path / place / "here").write_text("#!/bin/sh\necho found\n")
        (tmp_path / place / "here").chmod(mode)
    path = f"{tmp_path}/first/here:{tmp_path}/none:{tmp_path}/first"

    assert seen(Case(("here",), env={"PATH": f"{path}:{tmp_path}/second"})).out == "found\n"
    assert seen(Case(("here",), env={"PATH": f"{path}:/bin"})).why == "not permitted to execute: 'here'"


@pytest.mark.parametrize(
    ("argv", "cwd", "why"),
    [
        (("no-such",), "/", "no such program on its PATH: 'no-such'"),
        (("bin/no-such",), "/", "no such file: 'bin/no-such'"),
        (("./lost",), ".", "its interpreter is missing: './lost' (see its first line)"),
        (("./plain",), ".", "not permitted to execute: './plain'"),
        (("./no-hash-bang",), ".", "neither a binary nor a script with a #! line: './no-hash-bang'"),
        (("./plain/x",), ".", "cannot execute './plain/x': not a directory"),
        (("true", "a" * 200_000), "/", "cannot execute 'true': argument list too long"),
        (("true", "a\0b"), "/", "cannot execute 'true': embedded null byte"),
        (("true",), "/no/such", "working directory '/no/such': no such file or directory"),
        (("true",), "/proc/uptime", "working directory '/proc/uptime': not a directory"),
    ],
    ids=[
        "not on its PATH",
        "no file",
        "no interpreter",
        "not executable",
        "no format",
        "below a file",
        "too long",
        "NUL",
        "no directory",
        "a file for a directory",
    ],
)
def test_what_cannot_be_executed_is_one_clause(tmp_path: Path, argv: tuple[str, ...], cwd: str, why: str) -> None:
    for name, text, mode in (("plain", "", 0o644), ("no-hash-bang", "x\n", 0o755), ("lost", "#!/no/such\n", 0o755)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    place = str(tmp_path) if cwd == "." else cwd

    assert seen(Case(argv, cwd=place)).why == why


def test_a_long_clause_keeps_its_beginning_and_its_end() -> None:
    found = shell("true", cwd="/" + "ä" * 2000)

    assert found.why.startswith("working directory '/ä")
    assert found.why.endswith("ä': file name too long")
    assert found.size <= MAX_REPORT_BYTES


def test_a_clause_that_was_cut_within_a_character_is_read_all_the_same() -> None:
    assert explain("no such user: 'ä".encode()[:-1]) == "no such user: '"


def test_an_errand_is_as_the_job_is_but_for_its_own_variables(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("A=file\nB=file\n")
    found = shell(
        "echo the job",
        env={"PATH": "/usr/bin:/bin", "C": "job"},
        named=("C",),
        cwd=str(tmp_path),
        env_files=[str(file)],
        umask=0o77,
        errand=("sh", "-c", "echo $A $B $C; pwd; umask; exit 4"),
        env_over={"B": "errand", "C": "errand"},
    )

    assert (found.status, found.out.split()) == (4, ["file", "errand", "errand", str(tmp_path), "0077"])


def test_an_errand_that_cannot_be_executed_is_one_clause() -> None:
    assert shell("true", errand=("no-such",)).why == "no such program on its PATH: 'no-such'"
