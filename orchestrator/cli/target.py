"""Finds the cluster a client command means, and how to reach it.

In this order:
1. a file: `--file`, else `ORCHESTRATOR_FILE`, else `./jobs.yaml` (the last two not where `--redis` or
   `--cluster` was typed);
2. `--redis` or `ORCHESTRATOR_REDIS`, together with `--cluster`;
3. the nodes that run on this machine: whose sockets answer.

A node on this machine that uses another Redis than the one so named belongs to another cluster, whatever its name.

A file without `redis:` means the embedded server of this machine: its URL is what a local node says, else
what answers in the state directory. Reads files and sockets; never writes, never asks Redis.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from orchestrator import control, paths
from orchestrator.cli.options import Asked
from orchestrator.core.nouns import JobName
from orchestrator.core.snapshot import ClusterView
from orchestrator.core.spec import ClusterSpec, Scope
from orchestrator.errors import ConfigError, UsageError
from orchestrator.redis_url import parse_url

DEFAULT_FILE = "jobs.yaml"
NODE_PATIENCE_S = 1.0
"""A node answers in milliseconds; a frozen one must not freeze who asks."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node that runs on this machine.

    Attributes:
        file: Its jobs.yaml, "" if it has none.
        redis: URL of its Redis, the embedded one's too.
    """

    socket: Path
    cluster: str
    node: str
    file: str
    redis: str | None

    def view(self) -> ClusterView | None:
        """Ask for its own truth; None if it does not answer any more."""
        try:
            return ClusterView.from_json(control.ask(self.socket, "status", timeout_s=NODE_PATIENCE_S))
        except (OSError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster and how to reach it.

    Attributes:
        redis: URL; None: the embedded server, and it does not run.
        spec: The file; None: none is known, the nodes say which jobs there are.
        nodes: Its nodes on this machine.
    """

    cluster: str
    redis: str | None
    spec: ClusterSpec | None = None
    nodes: tuple[LocalNode, ...] = ()
    keys: Mapping[JobName, str] = field(default_factory=dict)


def find(asked: Asked, environ: Mapping[str, str], directory: Path) -> Target:
    """Find the cluster that is meant.

    Args:
        asked: What was typed.
        environ: The process's environment.
        directory: Where it was typed.

    Raises:
        ConfigError: The file is wrong.
        UsageError: Nothing says which cluster, or several do.
    """
    state = paths.state_root(environ, asked.state_dir)
    nodes = local_nodes(paths.runtime_root(environ, state))
    file = _file(asked, environ, directory)
    if file is not None:
        return _of_file(file, asked, environ, nodes, state)
    redis = asked.redis or environ.get("ORCHESTRATOR_REDIS") or None
    if redis and asked.cluster:
        return Target(asked.cluster, redis, nodes=_members(nodes, asked.cluster, redis))
    nodes = tuple(node for node in nodes if _uses(node, redis))
    clusters = sorted({node.cluster for node in nodes})
    cluster = asked.cluster or (clusters[0] if len(clusters) == 1 else None)
    if cluster in clusters:
        members = _members(nodes, cluster, redis)
        return Target(cluster, redis or members[0].redis, nodes=members)
    raise UsageError(_why_none(asked, redis, clusters, runtime=paths.runtime_root(environ, state)))


def spec_of(target: Target, environ: Mapping[str, str]) -> ClusterSpec | None:
    """Return the target's file, else that of a node on this machine, if it may be read.

    Raises:
        ConfigError: The node's file is wrong by now.
    """
    if target.spec is not None:
        return target.spec
    file = next((node.file for node in target.nodes if node.file), None)
    return load(Path(file), environ) if file else None


def load(path: Path, environ: Mapping[str, str]) -> ClusterSpec:
    """Read a jobs.yaml; pydantic is loaded only here.

    Raises:
        ConfigError: With every complaint.
    """
    from orchestrator import config  # noqa: PLC0415 - costs more than all the rest of `status`

    return config.load(path, environ)


def local_nodes(runtime: Path) -> tuple[LocalNode, ...]:
    """Return the nodes whose sockets answer; what is left of a dead one refuses at once."""
    return tuple(node for path in sorted(runtime.glob("*.sock")) for node in _asked_where(path))


def _asked_where(path: Path) -> Iterator[LocalNode]:
    try:
        said = control.ask(path, "where", timeout_s=NODE_PATIENCE_S)
        redis = said.get("redis")
        yield LocalNode(
            socket=path,
            cluster=str(said["cluster"]),
            node=str(said["node"]),
            file=str(said.get("file") or ""),
            redis=str(redis) if redis else None,
        )
    except (OSError, ValueError, KeyError):
        return


def _file(asked: Asked, environ: Mapping[str, str], directory: Path) -> Path | None:
    if asked.file:
        return Path(asked.file)
    if asked.redis or asked.cluster:
        return None
    if environ.get("ORCHESTRATOR_FILE"):
        return Path(environ["ORCHESTRATOR_FILE"])
    return Path(DEFAULT_FILE) if (directory / DEFAULT_FILE).is_file() else None


def _of_file(file: Path, asked: Asked, environ: Mapping[str, str], nodes: tuple[LocalNode, ...], state: Path) -> Target:
    spec = load(file, environ)
    cluster = asked.cluster or spec.cluster
    named = asked.redis or spec.redis or environ.get("ORCHESTRATOR_REDIS") or None
    members = _members(nodes, cluster, named)
    redis = named or next((node.redis for node in members if node.redis), None)
    return Target(
        cluster=cluster,
        redis=redis or _embedded(state),
        spec=spec,
        nodes=members,
        keys={job.name: job.key for job in spec.jobs if job.scope is Scope.CLUSTER},
    )


def _embedded(state: Path) -> str | None:
    """Return the URL of the embedded server; None where none was ever started. Whether it lives, asking tells."""
    socket = state / "embedded" / "s"
    return f"unix://{quote(str(socket))}" if socket.is_socket() else None


def _members(nodes: tuple[LocalNode, ...], cluster: str, redis: str | None) -> tuple[LocalNode, ...]:
    return tuple(node for node in nodes if node.cluster == cluster and _uses(node, redis))


def _uses(node: LocalNode, redis: str | None) -> bool:
    """Return whether a node uses a Redis; a password, and a port or a database that goes without saying, matter not."""
    if redis is None or node.redis is None or redis == node.redis:
        return True
    try:
        return parse_url(node.redis).shown == parse_url(redis).shown
    except ConfigError:
        return False  # who connects to the one that was typed says what is wrong with it


def _why_none(asked: Asked, redis: str | None, clusters: list[str], *, runtime: Path) -> str:
    if len(clusters) > 1 and not asked.cluster:
        return f"nodes of several clusters run on this machine: {', '.join(clusters)}; choose one with --cluster NAME"
    if redis:
        alone = "--redis" if asked.redis else "ORCHESTRATOR_REDIS"
        return f"{alone} alone does not say which cluster; add --cluster NAME or --file FILE"
    if asked.cluster:
        return (
            f"no node of the cluster `{asked.cluster}` runs on this machine ({runtime}); add --redis URL or --file FILE"
        )
    return (
        f"which cluster? There is no {DEFAULT_FILE} here and no node runs on this machine ({runtime});"
        " name one with --file FILE, or with --redis URL --cluster NAME"
    )
