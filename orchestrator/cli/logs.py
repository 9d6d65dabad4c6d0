"""`logs`: what jobs have written, where their logs are; from elsewhere the last words of their last run."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from orchestrator.cli import log_places, talk, target
from orchestrator.cli.log_file import LineSplitter, LogFile, readable
from orchestrator.cli.names import instances_meant
from orchestrator.cli.options import WHERE_HELP, Asked, cluster_options
from orchestrator.cli.picture import take
from orchestrator.core.snapshot import ClusterView
from orchestrator.errors import OrchestratorError, StoreUnreachableError

LINES = 20
"""How many without `-n`: as many as the record of a run keeps, so that it looks alike from everywhere."""
FOLLOW_EVERY_S = 0.2
LONGEST_LINE_BYTES = 65_536
_MOST_BYTES_A_READ = 1 << 18


@click.command("logs", short_help="Show what jobs have written; -f goes on with it.", epilog=WHERE_HELP)
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is written from now on, until ^C.")
@click.option(
    "--lines", "-n", type=click.IntRange(min=0), default=LINES, show_default=True, help="Begin so many lines back."
)
@click.option("--err", "stderr", is_flag=True, help="Show the stderr of a job that keeps it apart.")
@cluster_options
def logs(jobs: tuple[str, ...], *, follow: bool, lines: int, stderr: bool, asked: Asked) -> int:
    """Show what jobs have written; -f goes on with it.

    A job's log is on the machine of the node that ran it, and is shown there: back into its rotated backups
    if need be, and with -f on across rotations. On another machine the last words of its last run are shown,
    and stderr says where its log is.

    On a terminal nothing in the output can move the cursor; a pipe gets the bytes as they were written.
    `worker` means all its instances; of several each line bears the name. Runs that are alive at once
    (`overlap: allow`) have a log each: the one that was written last is shown, and -f goes on with all of them.

    Exit status: 0 shown, 1 there is nothing to show, 4 no such job, 69 nothing here and Redis does not answer.
    """
    outputs, unreachable = _outputs(target.find(asked, os.environ, Path.cwd()), jobs, asked)
    shown: list[_Shown] = []
    seen = False
    for output in outputs:
        several = len(outputs) > 1
        opened = _opened(output, several=several, stderr=stderr, follow=follow)
        if not opened:
            seen |= _show_last_words(output, f"{output.name} | " if several else "")
            continue
        seen = True
        opened[0].begin(lines)
        if follow:
            shown += opened
        else:
            opened[0].end()
    if not seen and unreachable is not None:
        raise unreachable
    if follow:
        _go_on(shown)
        return OrchestratorError.exit_status  # reached where there is nothing to follow: it is elsewhere
    return 0 if seen else OrchestratorError.exit_status


# click has one `-f` a command; here it is what everybody's fingers know from `tail -f`, and `--file` has none.
next(option for option in logs.params if option.name == "file").opts.remove("-f")


class _Shown:
    """A log that is shown, on a terminal or into a pipe."""

    def __init__(self, prefix: str, path: Path) -> None:
        """Note what each line begins with."""
        self._file = LogFile(path)
        self._prefix = prefix
        self._lines = LineSplitter(LONGEST_LINE_BYTES)
        self._on_terminal = talk.looked_at()

    def begin(self, lines: int) -> None:
        """Show the last lines, up to what is the end now: who writes faster than we show must not hold us."""
        left = self._file.begin_before_end(lines)
        while left > 0 and (size := self.go_on(min(left, _MOST_BYTES_A_READ))):
            left -= size

    def begin_at_end(self) -> None:
        """Show only what will be written."""
        self._file.begin_at_end()

    def go_on(self, most_bytes: int = _MOST_BYTES_A_READ) -> int:
        """Show what comes next; return how many bytes it was."""
        data = self._file.read(most_bytes)
        if self._prefix or self._on_terminal:
            self._show(self._lines.feed(data))
        else:
            sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return len(data)

    def end(self) -> None:
        """Show a line that has no end yet."""
        self._show(self._lines.rest())
        self._file.close()

    def _show(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            _put(self._prefix, line)


def _put(prefix: str, line: bytes) -> None:
    """Print a line: what can be read on a terminal, the bytes into a pipe."""
    if talk.looked_at():
        sys.stdout.write(f"{prefix}{readable(line)}\n")
    else:
        sys.stdout.buffer.write(prefix.encode() + line + b"\n")


def _outputs(
    found: target.Target, jobs: Sequence[str], asked: Asked
) -> tuple[list[log_places.Output], StoreUnreachableError | None]:
    """Find what is meant; without Redis from the file and this machine alone, and then return why.

    Raises:
        NotFoundError: There is no such job.
    """
    view: ClusterView | None = None
    unreachable: StoreUnreachableError | None = None
    try:
        view = asyncio.run(take(found)).view
    except StoreUnreachableError as error:
        unreachable = error
    spec = target.spec_of(found, os.environ)
    specs = {job.name: job for job in spec.jobs} if spec else {}
    rows = {row.name: row for row in view.jobs} if view else {}
    if not specs and unreachable is not None:
        raise unreachable
    meant = instances_meant(jobs, [*specs, *(name for name in rows if name not in specs)], spec)
    directories = log_places.node_directories(found, asked, os.environ)
    outputs = [log_places.Output(name, specs.get(name), rows.get(name), directories) for name in meant]
    return outputs, unreachable


def _opened(output: log_places.Output, *, several: bool, stderr: bool, follow: bool) -> list[_Shown]:
    """Open the log of a job on this machine; none if it is elsewhere, or not there yet and not to be followed.

    Of the logs of several nodes, or of several runs at once, the first was written last; the others are followed only.
    """
    places = [] if output.elsewhere else output.logs(stderr=stderr)
    there = any(path.exists() for _, path in places)
    if not follow:
        return [_Shown(f"{name} | " if several else "", path) for name, path in places[:1] if there]
    if places and not there:
        talk.tell(f"{output.why_not_here()}; waiting for it")
    several = several or len({name for name, _ in places}) > 1
    opened = [_Shown(f"{name} | " if several else "", path) for name, path in places]
    for each in opened[1:]:
        each.begin_at_end()
    return opened


def _show_last_words(output: log_places.Output, prefix: str) -> bool:
    """Show what is on record of the last run, and say why not more; tell whether it was anything."""
    words = output.last_words
    why = output.why_not_here()
    if not words:
        talk.tell(why + ("; of its output nothing is on record" if output.elsewhere else ""))
        return False
    talk.tell(f"{why}; the last words of its last run, on {output.last.get('node')}, ended {output.last.get('ended')}:")
    for line in words:
        _put(prefix, line.encode(errors="replace"))
    return True


def _go_on(shown: Sequence[_Shown]) -> None:
    """Show what is written from now on, one read of each log a turn, until ^C."""
    while shown:
        if not sum(each.go_on() for each in shown):
            time.sleep(FOLLOW_EVERY_S)
