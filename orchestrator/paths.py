"""Where a node keeps its things.

    <state>/<cluster>/<node>/     state_id, tokens.json, node.lock, logs/       (one directory a node)
    <state>/embedded/             the embedded server, shared by the nodes of this machine
    <runtime>/<cluster>.<node>.sock   the node's own truth, 0600

State: `--state-dir`, `$ORCHESTRATOR_STATE_DIR`, systemd's `$STATE_DIRECTORY`, `/var/lib/orchestrator` for root,
else `$XDG_STATE_HOME/orchestrator` (`~/.local/state/orchestrator`).
Runtime: `$ORCHESTRATOR_RUNTIME_DIR`, systemd's `$RUNTIME_DIRECTORY`, `/run/orchestrator` for root, else
`$XDG_RUNTIME_DIR/orchestrator`, else `<state>/run`.
"""

import os
from collections.abc import Mapping
from pathlib import Path

LONGEST_UNIX_PATH = 107
"""sun_path has 108 bytes with the closing zero (unix(7))."""


def state_root(environ: Mapping[str, str], given: str | None = None) -> Path:
    """Return the directory that outlives a restart of the machine."""
    if given:
        return Path(given).absolute()
    for name in ("ORCHESTRATOR_STATE_DIR", "STATE_DIRECTORY"):
        if environ.get(name):
            return Path(environ[name].split(":")[0])
    if os.geteuid() == 0:
        return Path("/var/lib/orchestrator")
    home = Path(environ.get("XDG_STATE_HOME") or Path(environ.get("HOME", "/")) / ".local/state")
    return home / "orchestrator"


def runtime_root(environ: Mapping[str, str], state: Path) -> Path:
    """Return the directory of the sockets, which need not outlive anything.

    A state directory that was chosen by hand keeps its sockets to itself, so that two of them on one
    machine (a test, a second installation) never meet.
    """
    for name in ("ORCHESTRATOR_RUNTIME_DIR", "RUNTIME_DIRECTORY"):
        if environ.get(name):
            return Path(environ[name].split(":")[0])
    if state != state_root({"HOME": environ.get("HOME", "/"), "XDG_STATE_HOME": environ.get("XDG_STATE_HOME", "")}):
        return state / "run"
    if os.geteuid() == 0:
        return Path("/run/orchestrator")
    if environ.get("XDG_RUNTIME_DIR"):
        return Path(environ["XDG_RUNTIME_DIR"]) / "orchestrator"
    return state / "run"


def node_directory(state: Path, cluster: str, node: str) -> Path:
    """Return the directory of one node."""
    return state / cluster / node


def socket_path(runtime: Path, cluster: str, node: str) -> Path:
    """Return the path of a node's own socket."""
    return runtime / f"{cluster}.{node}.sock"
