"""The file of a running node, read anew: on SIGHUP, or because somebody on this machine asked.

All or nothing: a file that is refused changes nothing. Reading happens in a thread, since 10,000 jobs take
seconds and the heartbeat must not wait for them; one reading at a time.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from orchestrator.cli import target
from orchestrator.core.messages import FileReloaded, Say
from orchestrator.core.node import Node
from orchestrator.core.reload import Change, compare, refusal
from orchestrator.core.run import Stage
from orchestrator.core.spec import ClusterSpec
from orchestrator.errors import ConfigError
from orchestrator.runs.client import Runs

Answer = Mapping[str, object]


class Reloading:
    """The node's side of `reload`."""

    def __init__(
        self,
        spec: ClusterSpec,
        core: Node,
        runs: Runs,
        *,
        deliver: Callable[[FileReloaded], None],
        say: Callable[[Say], None],
        on_reloaded: Callable[[ClusterSpec], None],
    ) -> None:
        """Take what the node runs by now.

        Args:
            spec: The file as it was read last.
            core: Knows what still runs by an older one.
            runs: The processes, for those that are told to read their own configuration.
            deliver: Tells the core.
            say: Takes a line for people.
            on_reloaded: Told of a file that was taken over.
        """
        self._spec = spec
        self._core = core
        self._runs = runs
        self._deliver = deliver
        self._say = say
        self._on_reloaded = on_reloaded
        self._reading = asyncio.Lock()

    async def reload(self, question: Answer) -> Answer:
        """Read the file and take it over; with `dry_run` only compare.

        Returns `{"ok": bool, "file": str, "problems": [text], "changes": [{"job", "effect", "fields"}]}`.
        """
        async with self._reading:
            file = self._spec.source
            try:
                spec = await asyncio.to_thread(target.load, Path(file), os.environ)
            except ConfigError as error:
                return self._refused(file, list(error.complaints))
            if problem := refusal(self._spec, spec):
                return self._refused(file, [f"{file}: {problem}"])
            changes = compare(self._spec, spec)
            if not question.get("dry_run"):
                self._spec = spec
                self._on_reloaded(spec)
                self._deliver(FileReloaded(spec))
            return {"ok": True, "file": file, "problems": [], "changes": [_told(change) for change in changes]}

    async def pending(self, _question: Answer) -> Answer:
        """Return the jobs that still run by what the file said before, each with what it waits for."""
        return {
            "jobs": {name: job.run.stop_why if job.run else "" for name, job in self._core.jobs.items() if job.revision}
        }

    async def reload_job(self, question: Answer) -> Answer:
        """Tell one running job to read its own configuration; `{"ok": bool, "said": text}`."""
        job = next((job for name, job in self._core.jobs.items() if name == question.get("job")), None)
        if job is None:
            return {"ok": False, "said": "this node does not have it"}
        if job.spec.reload is None:
            return {
                "ok": False,
                "said": "the file does not say how: write `reload: {signal: HUP}` or `reload: {command: ...}`",
            }
        if job.run is None or job.run.stage is not Stage.RUNNING:
            where = f"it runs on {job.lease.memory.value.node}, ask there" if job.lease.memory else "it does not run"
            return {"ok": False, "said": where}
        if not self._runs.reload(job.run.id):
            return {"ok": False, "said": "its leash does not answer"}
        if job.spec.reload.signal is not None:
            return {"ok": True, "said": f"{job.spec.reload.signal} to pid {job.run.pid}"}
        return {"ok": True, "said": "its reload command runs; the node's log says if it fails (hook.failed)"}

    def _refused(self, file: str, problems: list[str]) -> Answer:
        self._say(Say("file.refused", {"file": file, "why": problems[0].splitlines()[0] if problems else ""}, "error"))
        return {"ok": False, "file": file, "problems": problems, "changes": []}


def _told(change: Change) -> dict[str, object]:
    return {"job": change.job, "effect": change.effect.name.lower(), "fields": {**change.fields}}
