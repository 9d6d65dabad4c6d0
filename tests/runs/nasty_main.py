"""A main that holds one run a tree and may be killed or frozen: the node's process side, driven by lines.

    python -m tests.runs.nasty_main DIRECTORY

One JSON object a line, in both directions. The trees' tags come in by stdin, so that they stand on no
command line but the trees'.

    in                                         out
    {"start": {tree: tag, ...}}                {"launcher": pid}, then {"started": tree, "leash": pid} each
    the same with "in spares": true            (the same, with a spare for each that is ready before)
    {"do": "stop" | "fail" | "kill"}           (what it brings about)
    {"do": "let go"}                           {"let_go": instant from which the last deadlines were counted}
                                               {"unproven": tree, "why": clause}
                                               {"ended": tree, "cause": word}

Until it is told to let go, it moves the deadlines of all runs as a node does that renews every lease.
"""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

from orchestrator import clock
from orchestrator.core.messages import RunEnded, RunEvent, RunStarted, RunUnproven, StopRun
from orchestrator.core.nouns import RunId
from orchestrator.core.timing import LeaseTiming
from tests.runs.node import Node, job, nasty

LIFE_S = 60
"""Whatever a broken test leaves behind ends by itself; longer than any bound and all patience."""
STOP_S = 0.3
"""`stop.timeout` of every run."""
LEASE = LeaseTiming(
    ttl_s=8.0,
    heartbeat_s=0.1,
    request_timeout_s=0.3,
    step_down_grace_s=0.5,
    kill_time_s=2.0,
    margin_s=2.5,
)
"""Ample kill time and margin, as for a busy machine: a dozen trees die at once, and other tests run beside them."""


class Main:
    """One node's process side, and what its runs are called."""

    def __init__(self, directory: Path) -> None:
        """Nothing is started yet."""
        self._node = Node(directory)
        self._trees: dict[RunId, str] = {}
        self._told = 0
        self._asked_at = clock.boot()
        self._holds = True

    async def serve(self) -> None:
        """Do what the lines on stdin say, until they end."""
        await self._node.runs.open()
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        telling = asyncio.create_task(self._tell_and_renew())
        tell(launcher=self._node.launcher())
        async for line in reader:
            order = json.loads(line)
            if "start" in order:
                if order.get("in spares"):
                    await self._node.spares(len(order["start"]))
                self._start(order["start"])
            elif order["do"] == "let go":
                self._holds = False
                tell(let_go=self._asked_at)
            else:
                self._end(order["do"])
        telling.cancel()
        await self._node.runs.close()

    def _start(self, tags: dict[str, str]) -> None:
        self._asked_at = clock.boot()
        for tree, tag in tags.items():
            spec = replace(job((*nasty(tree, tag)[:-1], f"{LIFE_S}"), stop_s=STOP_S), lease=LEASE)
            self._trees[self._node.start(spec, LEASE.deadlines(self._asked_at))] = tree

    def _end(self, how: str) -> None:
        for run in self._trees:
            if how == "kill":
                self._node.kill(run)
            else:
                self._node.runs.stop(StopRun(run, STOP_S, "a test", failure=how == "fail"))

    async def _tell_and_renew(self) -> None:
        renew_at = 0.0
        while True:
            for event in self._node.events[self._told :]:
                self._told += 1
                self._tell(event)
            if self._holds and clock.boot() >= renew_at:
                self._asked_at = clock.boot()
                renew_at = self._asked_at + LEASE.heartbeat_s
                deadlines = LEASE.deadlines(self._asked_at)
                for run in self._trees:
                    self._node.extend(run, deadlines.term_at, deadlines.kill_at)
            await asyncio.sleep(0.005)

    def _tell(self, event: RunEvent) -> None:
        tree = self._trees[event.run]
        match event:
            case RunStarted():
                tell(started=tree, leash=self._node.leash(event.run))
            case RunUnproven():
                tell(unproven=tree, why=event.why)
            case RunEnded():
                tell(ended=tree, cause=event.cause)
            case _:
                pass


def tell(**facts: object) -> None:
    """Write one line to whoever watches."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(Main(Path(sys.argv[1])).serve())
