"""B16: Supervisor/supervisor#435, #711, #1171, #307.

With `user=` a program got that user's id and kept all else of root's: HOME, USER, LOGNAME, no supplementary groups,
so that `~` was /root and git, npm and gogs broke. Here a job is its user with all that belongs to one, what the
file names wins, and a user that cannot be is a reason of that job alone.
"""

import contextlib
import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.chaos.cluster import JOB, Cluster, Node, until

pytestmark = pytest.mark.chaos

SAY_ENV = (Path(__file__).parents[1] / "fixtures" / "say_env.sh").read_text()
"""As words of a command: another user may not be able to read where the tests stand."""
ONCE = {"restart": "never", "cwd": "/"}
SLOWLY = {"backoff": {"delay": "60s", "max_delay": "60s"}}


@dataclass(frozen=True, slots=True)
class User:
    """A user with a home directory, and a group beside the own one."""

    name: str
    other_group: str
    home: Path


@pytest.fixture
def opsy() -> Iterator[User]:
    """Return a user that this test made."""
    if shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
        pytest.skip("there is no useradd here")
    user = User(f"opsy{os.getpid()}", f"crew{os.getpid()}", Path(f"/home/opsy{os.getpid()}"))
    _tool("groupadd", user.other_group)
    try:
        _tool("useradd", "-m", "-d", str(user.home), "-s", "/bin/sh", "-U", "-G", user.other_group, user.name)
        yield user
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):  # if it could not be made
            _tool("userdel", "-r", user.name)
        _tool("groupdel", user.other_group)


def _tool(*argv: str) -> None:
    environ = os.environ | {"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}
    subprocess.run(argv, check=True, capture_output=True, env=environ, timeout=20)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's node can run jobs as other users")
def test_a_job_is_its_user_with_home_and_groups_and_the_file_wins(opsy: User, cluster: Cluster) -> None:
    env_file = cluster.directory / "env"  # root's alone, as everything there
    env_file.write_text("USER=of the file\nSECRET=told\n")
    say = {"command": ["sh", "-c", SAY_ENV], "user": opsy.name, **ONCE}
    cluster.write(
        jobs={
            "plain": say,
            "named": say | {"env": {"HOME": "/x"}},
            "filed": say | {"env_file": str(env_file), "command": f"echo $SECRET; {SAY_ENV}", "umask": "027"},
            "home": say | {"command": "cd ~ && touch mine && echo ~ && stat -c %U mine"},
            "child": say | {"command": 'sh -c "id -un; id -Gn"'},
            "hooked": say | {"command": "echo done", "on_success": "id -un; echo $HOME"},
            "clean": say | {"command": "env | cut -d = -f 1", "env_inherit": "none"},
        }
    )
    node = cluster.up("a")

    told = {job: output(node, job) for job in ("plain", "named", "filed", "home", "child", "hooked", "clean")}

    # Documented: what the node has in its environment is inherited, root's node or not, unless `env_inherit` says else.
    names = {name for name in told["clean"].split() if not name.startswith("ORCHESTRATOR_")}
    assert names == {"HOME", "USER", "LOGNAME", "SHELL", "PWD"}
    members = f"groups={opsy.name} {opsy.other_group}"
    who = f"USER={opsy.name} LOGNAME={opsy.name} SHELL=/bin/sh PWD=/ id={opsy.name}:{opsy.name} {members} umask="
    assert told["plain"].startswith(f"HOME={opsy.home} {who}")
    assert told["named"].startswith(f"HOME=/x {who}")
    assert told["filed"].splitlines()[0] == "told"
    assert f"HOME={opsy.home} USER=of the file LOGNAME={opsy.name} " in told["filed"]
    assert told["filed"].endswith(" umask=0027\n")
    assert told["home"] == f"{opsy.home}\n{opsy.name}\n"
    assert told["hooked"] == f"done\n{opsy.name}\n{opsy.home}\n"
    assert told["child"] == f"{opsy.name}\n{opsy.name} {opsy.other_group}\n"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's node can run jobs as other users")
def test_nothing_of_another_user_s_job_is_left_when_it_is_stopped(opsy: User, cluster: Cluster) -> None:
    cluster.write(jobs={"deaf": {"command": "trap '' TERM; setsid sleep 300 & sleep 300", "user": opsy.name}})
    node = cluster.up("a")
    node.says("event=run.started job=deaf")
    cluster.command("stop", "deaf", "--file", str(cluster.file), "--redis", cluster.server.url)

    node.says("event=lease.released job=deaf")

    assert cluster.processes("ORCHESTRATOR_JOB=deaf") == []


def test_an_unknown_user_is_the_reason_of_that_job_alone(cluster: Cluster) -> None:
    witness = {"command": cluster.witness.command()}
    cluster.write(
        jobs={
            "user": {"command": "true", "user": "nosuch", **SLOWLY},
            "group": {"command": "true", "group": "nosuch", **SLOWLY},
            JOB: witness,
        }
    )
    node = cluster.up("a")

    assert reason(node, "user") == "no such user: 'nosuch'"
    assert reason(node, "group") == "no such group: 'nosuch'"
    assert_the_others_run(cluster)


def test_where_the_node_is_not_root_s_another_user_is_refused_and_its_own_is_not(cluster: Cluster) -> None:
    own = pwd.getpwuid(os.geteuid() or 65534)
    cluster.write(
        jobs={
            "other": {"command": "true", "user": "root", **SLOWLY},
            "own": {"command": ["sh", "-c", SAY_ENV], "user": own.pw_name, **ONCE},
            JOB: {"command": cluster.witness.command()},
        }
    )
    node = up_without_root(cluster, own.pw_uid)

    assert reason(node, "other") == "runs as another user only where the node runs as root: user 'root'"
    assert f"HOME={own.pw_dir} USER={own.pw_name} LOGNAME={own.pw_name} " in output(node, "own")
    assert_the_others_run(cluster)


def up_without_root(cluster: Cluster, uid: int) -> Node:
    """Start a node that is not root's, whoever the tests are; it may read what they may, and no more."""
    as_user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    as_user += ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    up = [sys.executable, "-m", "orchestrator", "up", str(cluster.file), "--redis", cluster.server.url]
    up = [*(as_user if os.geteuid() == 0 else []), *up, "--log-format", "logfmt", "--new-cluster"]
    node = cluster.nodes["a"] = Node("a", cluster.directory, up, cluster.environ())
    node.says("event=node.joined")
    return node


def output(node: Node, job: str) -> str:
    """Wait for the end of a job's only run, and return what it wrote."""
    node.says(f"event=run.ended job={job} ")
    return (node.state / "chaos" / node.name / "logs" / f"{job}.log").read_text()


def reason(node: Node, job: str) -> str:
    """Wait for a run of a job that fails, and return why."""
    node.says(f"event=run.ended job={job} ")
    found = re.search(rf'event=run\.ended job={job} .* outcome=failed end="(.*?)" elapsed_s', node.log)
    assert found is not None, node.log
    return found[1]


def assert_the_others_run(cluster: Cluster) -> None:
    """Assert that the witness job runs, and that the others wait for another try and say why."""
    cluster.run()
    until(lambda: "backoff" in {row["state"] for row in cluster.status()["jobs"]}, "a job backs off")
    rows = {row["name"]: row for row in cluster.status()["jobs"]}
    assert rows.pop(JOB)["state"] == "running"
    assert all(row["why"] or row["state"] == "stopped" for row in rows.values())
    assert "Traceback" not in "".join(node.log for node in cluster.nodes.values())
