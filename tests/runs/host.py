"""A main that tests may kill: opens `Runs`, starts one run, and extends its deadlines until it ends.

    TREE_TAG=... python -m tests.runs.host DIRECTORY MODE [SPARES]

The tag comes in the environment, so that it stands on no command line but the tree's.
It prints one line once the tree runs: the pids of launcher and leash; and of so many spares, if they are asked for.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from tests.runs.node import Node, job, nasty, soon

EXTEND_EVERY_S = 0.1
TERM_IN_S, KILL_IN_S = 1.5, 1.8
"""The lease of a run, from the last time it was extended."""


async def _hold(directory: Path, mode: str, tag: str, spares: int) -> None:
    node = Node(directory)
    await node.runs.open()
    run = node.start(job(nasty(mode, tag)), soon(TERM_IN_S, KILL_IN_S))
    await node.started(run)
    pids: dict[str, object] = {"launcher": node.launcher(), "leash": node.leash(run)}
    if spares:
        pids["spares"] = await node.spares(spares)
    sys.stdout.write(json.dumps(pids) + "\n")
    sys.stdout.flush()
    while True:
        await asyncio.sleep(EXTEND_EVERY_S)
        deadlines = soon(TERM_IN_S, KILL_IN_S)
        node.extend(run, deadlines.term_at, deadlines.kill_at)


if __name__ == "__main__":
    asyncio.run(_hold(Path(sys.argv[1]), sys.argv[2], os.environ["TREE_TAG"], sum(map(int, sys.argv[3:]))))
