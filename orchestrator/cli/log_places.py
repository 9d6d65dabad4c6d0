"""Where the log of a job is: on this machine, or with which node.

Reads directories and asks the sockets of this machine; never reads a log.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator import control, paths
from orchestrator.cli.options import Asked
from orchestrator.cli.target import NODE_PATIENCE_S, LocalNode, Target
from orchestrator.core.nouns import JobName
from orchestrator.core.snapshot import JobView
from orchestrator.core.spec import JobSpec, Overlap, Scope
from orchestrator.errors import UsageError
from orchestrator.runs import order


def node_directories(found: Target, asked: Asked, environ: Mapping[str, str]) -> dict[str, Path]:
    """Return the state directories on this machine by the names of their nodes, whether those run now or not."""
    below = paths.state_root(environ, asked.state_dir) / found.cluster
    try:
        left = {entry.name: entry for entry in below.iterdir() if entry.is_dir()}
    except OSError:
        left = {}
    return left | {node.node: directory for node in found.nodes if (directory := _directory(node))}


def _directory(node: LocalNode) -> Path | None:
    """Ask a node that runs: it may have been told another state directory than we."""
    try:
        state = control.ask(node.socket, "where", timeout_s=NODE_PATIENCE_S).get("state_dir")
    except (OSError, ValueError):
        return None
    return paths.node_directory(Path(state), node.cluster, node.node) if isinstance(state, str) and state else None


@dataclass(frozen=True, slots=True)
class Output:
    """The output of one instance, as far as it can be had from this machine.

    Attributes:
        spec: None: no file is known that says where its log would be.
        row: What Redis or a node on this machine says of it, None: neither knows it.
        directories: See `node_directories`.
    """

    name: JobName
    spec: JobSpec | None
    row: JobView | None
    directories: Mapping[str, Path]

    def logs(self, *, stderr: bool) -> list[tuple[str, Path]]:
        """Return where its log may be on this machine, what was written last first; nothing need be there.

        Each with the name that its lines bear: runs that are alive at once (`overlap: allow`) have a log each.

        Raises:
            UsageError: Its stderr is to be shown, and has no log of its own.
        """
        if self.spec is None:
            return []
        place = order.err_log_path if stderr else order.log_path
        if stderr and self.spec.log.stderr != "separate":
            raise UsageError(f"the stderr of {self.name} goes where its stdout goes; show it without --err")
        # A log that the file names is where it is, whether or not any state directory is known.
        directories = [*self.directories.values(), *([Path()] if self.spec.log.file else [])]
        lanes = range(self.spec.max_instances if self.spec.overlap is Overlap.ALLOW else 1)
        wanted = {
            path: f"{self.name}~{lane}" if lane else self.name
            for lane in reversed(lanes)  # where all lead to one place it bears the plain name
            for each in directories
            if (path := place(each, self.spec, lane))
        }
        return [(wanted[path], path) for path in sorted(sorted(wanted), key=_written_at, reverse=True)]

    @property
    def elsewhere(self) -> str:
        """The node on another machine that runs it, or ran it last; "" if that is here, or nobody knows."""
        if self.row is None or self.row.scope == Scope.NODE.value:
            return ""
        node = self.row.holder or str(self.last.get("node") or "")
        return "" if node in self.directories else node

    @property
    def last(self) -> Mapping[str, object]:
        """The record of its last run, empty if there is none."""
        return (self.row.last if self.row else None) or {}

    @property
    def last_words(self) -> list[str]:
        """What the record keeps of the output of its last run."""
        words = self.last.get("output")
        return [str(line) for line in words] if isinstance(words, list) else []

    def why_not_here(self) -> str:
        """Say in one clause why there is no log on this machine."""
        if self.spec is not None and self.spec.log.mode == "journal":
            return f"{self.name} writes onto its node's own stderr (`log: journal`), and has no log file"
        if self.spec is not None and self.spec.log.mode == "none":
            return f"the output of {self.name} is dropped (`log: none`)"
        if not self.elsewhere:
            hint = "" if self.directories else "; no node has kept anything here, unless another --state-dir is meant"
            return f"{self.name} has no log yet: it has written nothing on this machine{hint}"
        if self.row is not None and self.row.holder:
            return f"{self.name} runs on {self.elsewhere}, and its log is there"
        return f"{self.name} ran last on {self.elsewhere}, and its log is there"


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
