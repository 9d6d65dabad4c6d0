"""As whom a program runs, with which limits and variables; and what is said when that cannot be."""

import grp
import os
import pwd
import resource
import subprocess
from pathlib import Path

import pytest

from orchestrator.runs import linux
from tests.runs.first_process import Case, refused, seen, shell
from tests.runs.node import until

NOBODY = 65534
ANOTHER = next(entry for entry in pwd.getpwall() if entry.pw_uid not in {0, os.geteuid()})
"""A user who is not the tests'."""
MAY_RAISE_LIMITS = (
    int(Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0], 16) >> 24 & 1
)  # CAP_SYS_RESOURCE
OURS = pwd.getpwuid(os.geteuid()).pw_name

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user or raises a limit")


def test_files_win_over_what_is_inherited_and_names_over_files(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("INHERITED=first\nNAMED=first\nBOTH=first\nPATH=/usr/bin:/bin\n")
    second.write_text("BOTH=second\n")

    found = shell(
        'echo "$INHERITED $NAMED $BOTH $KEPT"',
        env={"PATH": "/nowhere", "INHERITED": "node", "NAMED": "job", "KEPT": "node"},
        named=("NAMED", "FORGOTTEN"),
        env_files=[str(first), str(second)],
    )

    assert found.out == "first job second node\n"


def test_its_own_user_gives_it_a_home_even_where_nothing_changes() -> None:
    entry = pwd.getpwnam(OURS)

    found = shell('echo "$HOME $USER $LOGNAME $SHELL"', user=OURS, env={"PATH": "/usr/bin:/bin", "HOME": "/wrong"})

    assert found.out == f"{entry.pw_dir} {OURS} {OURS} {entry.pw_shell or '/bin/sh'}\n"


def test_what_a_job_names_wins_over_its_user(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("USER=of the file\nSHELL=of the file\n")

    found = shell(
        'echo "$HOME, $USER, $SHELL"',
        user=OURS,
        env={"PATH": "/usr/bin:/bin", "HOME": "/x", "USER": "inherited", "SHELL": "/bin/x"},
        named=("HOME", "SHELL"),
        env_files=[str(file)],
    )

    assert found.out == "/x, of the file, /bin/x\n"


def test_a_file_that_cannot_be_used_is_named_and_its_line(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("A=1\n\nB 2\n")

    assert refused(env_files=[str(file)]) == f"env_file '{file}' line 3: not NAME=value"
    assert refused(env_files=["/no/such"]) == "env_file '/no/such': no such file"


def test_limits_are_soft_and_hard_alike_and_win_over_the_old_limit_of_open_files() -> None:
    found = shell("ulimit -Sn; ulimit -Hn; ulimit -Sc; ulimit -Hc", limits=[["nofile", 99], ["core", 0]])

    assert found.out.split() == ["99", "99", "0", "0"]


def test_without_limits_the_old_limit_of_open_files_is_back() -> None:
    assert shell("ulimit -Sn", open_files=77).out == "77\n"


def test_a_limit_that_is_too_low_for_the_set_up_itself_is_the_program_s_alone(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("A=read\n")

    assert shell("echo $A", limits=[["nofile", 4]], env_files=[str(file)], user=OURS).out == "read\n"


def test_a_limit_above_the_hard_one_is_refused_by_name() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert refused(limits=[["nofile", hard + 1]], unprivileged=True) == (
        f"limit nofile={hard + 1}: more than the node may set ({hard})"
    )
    assert refused(limits=[["nofile", -1]], unprivileged=True) == (
        f"limit nofile=unlimited: more than the node may set ({hard})"
    )


@pytest.mark.root
@needs_root
def test_root_is_told_what_the_system_allows_at_most() -> None:
    most = Path("/proc/sys/fs/nr_open").read_text().strip()

    assert refused(limits=[["nofile", -1]]) == f"limit nofile=unlimited: more than the node may set ({most})"


def test_a_limit_that_this_system_lacks_is_refused() -> None:
    assert refused(limits=[["patience", 5]]) == "limit patience=5: this system has no such limit"


def test_what_does_not_fit_into_its_limit_of_memory_is_not_called_started() -> None:
    found = shell("echo it runs", limits=[["as", 1 << 20]])

    assert found.out == ""
    assert found.status != 0


def test_umask_and_niceness_and_the_score_for_the_oom_killer_are_as_asked() -> None:
    found = shell("umask; cat /proc/self/oom_score_adj; nice", umask=0o27, nice=7, oom_score_adj=900)

    assert found.out.split() == ["0027", "900", "7"]


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel does not group by session")
def test_niceness_counts_beside_other_sessions() -> None:
    assert shell("cat /proc/self/autogroup", nice=7).out.endswith(" nice 7\n")


def test_zero_is_a_wish_too() -> None:
    assert shell("umask; nice", umask=0, nice=0).out.split() == ["0000", "0"]


def test_what_only_root_may_lower_is_refused_by_name() -> None:
    assert refused(nice=-5, unprivileged=True) == "nice -5: not permitted"
    assert refused(oom_score_adj=-900, unprivileged=True) == "oom_score_adj -900: not permitted"


def test_an_unknown_user_or_group_is_refused() -> None:
    assert refused(user="nosuch") == "no such user: 'nosuch'"
    assert refused(group="nosuch") == "no such group: 'nosuch'"
    assert refused(user="-1") == "no such user: '-1'"


@pytest.mark.parametrize("number", ["4294967295", "4294967296", "99999999999999999999"])
def test_a_number_that_means_unchanged_or_more_is_no_user_and_no_group(number: str) -> None:
    assert refused(user=number) == f"no such user: '{number}'"
    assert refused(group=number) == f"no such group: '{number}'"


def test_another_user_needs_root() -> None:
    told = refused(user=ANOTHER.pw_name if ANOTHER.pw_uid != NOBODY else OURS, unprivileged=True)

    assert told.startswith("runs as another user only where the node runs as root: user ")


def test_another_group_needs_root() -> None:
    told = refused(group="4242", unprivileged=True)

    assert told == "runs as another group only where the node runs as root: group '4242'"


def test_the_node_s_own_group_needs_nothing() -> None:
    ours = str(os.getegid() if os.geteuid() else NOBODY)

    assert shell("id -g", group=ours, unprivileged=True).out == f"{ours}\n"


def test_a_home_that_the_user_cannot_enter_is_named() -> None:
    told = refused(cwd="/proc/1/fd", unprivileged=True)

    assert told == "working directory '/proc/1/fd': permission denied"


@pytest.mark.root
@needs_root
def test_root_s_job_is_its_user_with_all_groups() -> None:
    name, home = ANOTHER.pw_name, ANOTHER.pw_dir
    groups = sorted(os.getgrouplist(name, ANOTHER.pw_gid))

    found = shell('id -un; id -G; echo "$HOME $USER $LOGNAME"; grep -E "^[UG]id:" /proc/self/status', user=name)
    user, members, variables, *ids = found.out.splitlines()

    assert (user, variables) == (name, f"{home} {name} {name}")
    assert sorted(map(int, members.split())) == groups
    assert [line.split()[1:] for line in ids] == [[str(ANOTHER.pw_uid)] * 4, [str(ANOTHER.pw_gid)] * 4]


@pytest.mark.root
@needs_root
def test_a_user_s_number_is_as_good_as_the_name() -> None:
    assert shell("id -un; echo $USER", user=str(ANOTHER.pw_uid)).out.split() == [ANOTHER.pw_name] * 2


@pytest.mark.root
@needs_root
def test_a_number_without_an_entry_has_no_home_and_none_of_root_s_groups() -> None:
    env = {"PATH": "/usr/bin:/bin", "HOME": "/inherited"}

    assert shell("id -u; id -G; echo $HOME$USER", user="51234", env=env).out.split() == ["51234", "65534", "/inherited"]
    assert shell("id -u; id -G", user="51234", group="51235").out.split() == ["51234", "51235"]


@pytest.mark.root
@needs_root
def test_a_group_alone_leaves_the_user_and_drops_all_other_groups() -> None:
    group = next(entry for entry in grp.getgrall() if entry.gr_gid != 0)

    assert shell("id -u; id -G", group=group.gr_name).out.split() == ["0", str(group.gr_gid)]


@pytest.mark.root
@needs_root
def test_a_group_beside_a_user_takes_the_place_of_the_user_s_own() -> None:
    found = shell("id -g; id -G", user=ANOTHER.pw_name, group="4242").out.splitlines()

    assert found[0] == "4242"
    assert sorted(map(int, found[1].split())) == sorted(os.getgrouplist(ANOTHER.pw_name, 4242))


@pytest.mark.root
@needs_root
def test_it_is_nicer_to_itself_before_it_is_another_user() -> None:
    assert shell("nice; id -un", user=ANOTHER.pw_name, nice=-5).out.split() == ["-5", ANOTHER.pw_name]


@pytest.mark.root
@needs_root
@pytest.mark.skipif(not MAY_RAISE_LIMITS, reason="the root of this container lacks CAP_SYS_RESOURCE")
def test_limits_are_raised_before_it_is_another_user() -> None:
    raised = resource.getrlimit(resource.RLIMIT_NOFILE)[1] + 1

    found = shell(
        "ulimit -n; cat /proc/self/oom_score_adj; id -un",
        user=ANOTHER.pw_name,
        oom_score_adj=-900,
        limits=[["nofile", raised]],
    )

    assert found.out.split() == [str(raised), "-900", ANOTHER.pw_name]


@pytest.mark.root
@needs_root
def test_root_s_file_of_variables_is_read_for_another_user(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("SECRET=told\n")
    file.chmod(0o600)

    assert shell("id -un; echo $SECRET", user=ANOTHER.pw_name, env_files=[str(file)]).out.split() == [
        ANOTHER.pw_name,
        "told",
    ]


@pytest.mark.root
@needs_root
def test_its_working_directory_is_entered_as_its_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)

    told = refused(user=ANOTHER.pw_name, cwd=str(tmp_path))

    assert told == f"working directory '{tmp_path}': permission denied"


@pytest.mark.root
@needs_root
def test_another_user_may_open_its_output_anew() -> None:
    found = shell("echo out >/dev/stdout; echo err >/dev/stderr", user=ANOTHER.pw_name)

    assert (found.out, found.err) == ("out\n", "err\n")


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("user", [None, ANOTHER.pw_name], ids=["as root", "as another user"])
async def test_it_dies_with_its_leash_whoever_it_is(user: str | None) -> None:
    pid = int(seen(Case(("sleep", "20"), identity={"user": user}, leash_dies=True)).out)

    await until(lambda: linux.state(pid) in {"", "Z"}, "it is dead", patience_s=10.0)


@pytest.mark.root
@needs_root
def test_a_user_s_limit_of_processes_is_said_so() -> None:
    with subprocess.Popen(["sleep", "20"], user=51236) as other:
        found = shell("true", user="51236", limits=[["nproc", 0]])
        other.kill()

    assert found.why == "cannot execute 'sh': its user has as many processes as the limit nproc allows"
