"""`up`: one node, from its file to its farewell. The only place where all parts meet.

What is opened is closed in the opposite order: the state directory (locked), the launcher, the embedded
server if there is no Redis, the store, the node's socket; then the shell turns until the core quits.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from orchestrator import __version__, clock, paths
from orchestrator.cli import target
from orchestrator.cli.options import filled
from orchestrator.cli.reloading import Reloading
from orchestrator.cli.screen import Screen
from orchestrator.control import Answer, ControlServer
from orchestrator.core.info import Identity
from orchestrator.core.messages import LeaveOrdered, Say
from orchestrator.core.node import Node
from orchestrator.core.nouns import NodeName
from orchestrator.core.spec import ClusterSpec
from orchestrator.embedded import Embedded
from orchestrator.errors import ConfigError, OrchestratorError
from orchestrator.node import Inbox, Shell
from orchestrator.runs import cgroups
from orchestrator.runs.client import Runs
from orchestrator.runs.order import err_log_path, log_path
from orchestrator.state import StateDirectory
from orchestrator.store.store import Store
from orchestrator.systemd import Notifier
from orchestrator.view.narration import FORMATS

LONGEST_NAME = 100
MOST_URGENT = 2
"""The third order to leave kills; a fourth can do no more (see `LeaveOrdered`)."""


@click.command("up", short_help="Run the jobs of a file on this node.")
@click.argument("file", callback=filled, metavar="[FILE]", default=target.DEFAULT_FILE)
@click.option(
    "--node", callback=filled, metavar="NAME", help="This node's name; else ORCHESTRATOR_NODE, the file's, the host's."
)
@click.option("--redis", callback=filled, metavar="URL", help="Redis instead of the file's; else ORCHESTRATOR_REDIS.")
@click.option("--state-dir", callback=filled, metavar="DIR", help="Where this node keeps its things.")
@click.option("--new-cluster", is_flag=True, help="This Redis is new: take the first leases without waiting a ttl.")
@click.option("--exit-on-failure", is_flag=True, help="Leave when a job has failed for good, with its exit status.")
@click.option("--log-format", type=click.Choice(list(FORMATS)), help="human on a terminal, else logfmt.")
def up(
    file: str,
    *,
    node: str | None,
    redis: str | None,
    state_dir: str | None,
    new_cluster: bool,
    exit_on_failure: bool,
    log_format: str | None,
) -> int:
    """Run the jobs of a file on this node, until it is told to go.

    Every job whose lease this node gets runs here; for the others it stands by. SIGTERM or ^C stops the jobs
    in order and gives their leases back; a second one shortens the grace, a third kills. SIGHUP, or
    `orchestrator reload`, reads the file anew. Without a `redis` in the file an embedded server is used, for this
    machine only.

    What happens is told on stderr; on a terminal the jobs' output is shown too.

    With --exit-on-failure the node stops all its jobs and goes as soon as one has failed for good: a service that
    is not started again, or any run of a cron. For containers: it also serves as PID 1.

    Exit status: 0 told to go, 1 the node's name or directory is taken, 78 the file is wrong; with
    --exit-on-failure that of the job that failed, 128 + the signal where one ended it.
    """
    spec = target.load(Path(file), os.environ)
    name = _checked(node or os.environ.get("ORCHESTRATOR_NODE") or spec.node or socket.gethostname())
    state = paths.state_root(os.environ, state_dir)
    place = Place(
        spec,
        name,
        state,
        redis or spec.redis or os.environ.get("ORCHESTRATOR_REDIS") or None,
        new_cluster=new_cluster,
        exit_on_failure=exit_on_failure,
    )
    directory = StateDirectory(paths.node_directory(state, spec.cluster, name))
    directory.open()
    try:
        with _screen(log_format, spec, directory.path) as screen:
            return asyncio.run(_live(place, directory, screen))
    finally:
        directory.close()


@dataclass(frozen=True, slots=True)
class Place:
    """Which node this is, and where.

    Attributes:
        state: The state root of this machine.
        redis: URL; None: the embedded server.
        new_cluster: This Redis is new.
        exit_on_failure: Leave when a job has failed for good.
    """

    spec: ClusterSpec
    node: NodeName
    state: Path
    redis: str | None
    new_cluster: bool
    exit_on_failure: bool

    def said(self, url: str) -> Mapping[str, object]:
        """Return what a client on this machine must know to reach the cluster; only its owner can ask."""
        return {
            "cluster": self.spec.cluster,
            "node": self.node,
            "file": self.spec.source,
            "redis": url,
            "pid": os.getpid(),
            "state_dir": str(self.state),
        }


async def _live(place: Place, directory: StateDirectory, screen: Screen) -> int:
    notifier = Notifier(os.environ)
    inbox = Inbox()
    async with contextlib.AsyncExitStack() as stack:
        runs = Runs(
            directory=directory.path,
            deliver=inbox.deliver,
            environ=os.environ,
            say=screen.say,
            cgroup=cgroups.own(),
        )
        await runs.open()
        stack.push_async_callback(runs.close)
        embedded = Embedded(place.state, on_spawned=runs.spare) if place.redis is None else None
        if embedded is not None:
            stack.push_async_callback(embedded.detach)
        url = place.redis or (await embedded.attach() if embedded else "")
        vouched = place.new_cluster or (embedded is not None and embedded.started_alone)
        core = Node(
            place.spec,
            _identity(place.node, directory.state_id),
            directory.floors,
            new_cluster=vouched,
            exit_on_failure=place.exit_on_failure,
        )
        store = Store(url, cluster=place.spec.cluster, node=place.node, request_timeout_s=core.request_timeout_s)
        stack.push_async_callback(store.close)
        shell = Shell(
            core,
            inbox=inbox,
            store=store,
            runs=runs,
            remember=directory.remember,
            say=screen.say,
            on_turn=notifier.feed,
            revive=embedded.ensure if embedded else None,
        )
        reloading = Reloading(
            place.spec,
            core,
            runs,
            deliver=inbox.deliver,
            say=screen.say,
            on_reloaded=lambda spec: screen.show(spec.jobs),
        )
        await stack.enter_async_context(_answering(place, core, url, reloading))
        stack.enter_context(_obeying_signals(inbox, reloading))
        screen.say(Say("node.up", {"node": place.node, "cluster": place.spec.cluster, "redis": store.shown}))
        if not place.spec.jobs:
            screen.say(Say("node.idle", level="warning"))
        notifier.tell("READY=1", f"STATUS={len(place.spec.jobs)} jobs, {store.shown}")
        await shell.run()
        notifier.tell("STOPPING=1")
    if shell.problem:
        raise OrchestratorError(shell.problem)
    return shell.exit_status


@contextlib.asynccontextmanager
async def _answering(place: Place, core: Node, url: str, reloading: Reloading) -> AsyncIterator[None]:
    """Answer on the node's own socket while it lives."""

    async def status(_question: Mapping[str, object]) -> Mapping[str, object]:
        return core.view(clock.now()).to_json()

    async def where(_question: Mapping[str, object]) -> Mapping[str, object]:
        return place.said(url)

    answers: dict[str, Answer] = {
        "status": status,
        "where": where,
        "reload": reloading.reload,
        "reloading": reloading.pending,
        "reload_job": reloading.reload_job,
    }
    path = paths.socket_path(paths.runtime_root(os.environ, place.state), place.spec.cluster, place.node)
    control = ControlServer(path, answers)
    await control.open()
    try:
        yield
    finally:
        await control.close()


@contextlib.contextmanager
def _obeying_signals(inbox: Inbox, reloading: Reloading) -> Iterator[None]:
    """Let SIGTERM and ^C order the node to leave, each one more urgently, and SIGHUP to read its file anew."""
    loop = asyncio.get_running_loop()
    urgencies = iter(range(MOST_URGENT))
    reloads: set[asyncio.Task[Mapping[str, object]]] = set()

    def leave() -> None:
        inbox.deliver(LeaveOrdered(next(urgencies, MOST_URGENT)))

    def reload() -> None:
        task = loop.create_task(reloading.reload({}))
        reloads.add(task)  # or it could be collected in the middle
        task.add_done_callback(reloads.discard)

    meanings = {signal.SIGTERM: leave, signal.SIGINT: leave, signal.SIGHUP: reload}
    for number, meaning in meanings.items():
        loop.add_signal_handler(number, meaning)
    try:
        yield
    finally:
        for number in meanings:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _screen(log_format: str | None, spec: ClusterSpec, directory: Path) -> Iterator[Screen]:
    """Tell people what happens: sentences and the jobs' output on a terminal, logfmt into a pipe."""
    on_terminal = sys.stderr.isatty()
    chosen = log_format or ("human" if on_terminal else "logfmt")
    lively = on_terminal and chosen == "human"
    screen = Screen(
        FORMATS[chosen],
        logs=(lambda job: (log_path(directory, job), err_log_path(directory, job))) if lively else None,
        colours=lively and "NO_COLOR" not in os.environ,
    )
    screen.show(spec.jobs)
    try:
        yield screen
    finally:
        screen.close()


def _identity(node: NodeName, state_id: str) -> Identity:
    return Identity(
        node=node,
        incarnation=secrets.token_hex(8),
        state_id=state_id,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
    )


def _checked(name: str) -> NodeName:
    if not name or len(name) > LONGEST_NAME or any(not (char.isalnum() or char in "-_.") for char in name):
        raise ConfigError(
            f"the node name `{name}` may hold letters, digits and -_. only, at most {LONGEST_NAME} of them;"
            " set another with --node"
        )
    return NodeName(name)
