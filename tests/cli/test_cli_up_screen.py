"""What `up` shows of the jobs that run here."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

from orchestrator.cli.screen import Screen
from orchestrator.core.messages import Say
from orchestrator.core.nouns import JobName
from orchestrator.core.spec import JobSpec
from tests.chaos.cluster import until
from tests.runs.node import job


class Seen:
    """A screen, and what stands on it."""

    def __init__(self, directory: Path, stderr: io.StringIO) -> None:
        """Show the output of a job whose two logs are in a directory."""
        self._stderr = stderr
        self.out, self.err = directory / "job.log", directory / "job.err.log"
        self.spec: JobSpec = job(("true",))
        self.screen = Screen(lambda say, _utc: say.event, logs=lambda _job: (self.out, self.err), colours=False)

    def acquire(self) -> None:
        """Let the job's first run here begin."""
        self.screen.say(Say("lease.acquired", {"job": JobName(self.spec.name)}))

    def until(self, shown: str) -> list[str]:
        """Wait until a text is shown, and return all lines so far."""
        until(lambda: shown in self._stderr.getvalue(), f"`{shown}` is shown")
        return self._stderr.getvalue().splitlines()


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[Seen]:
    """Open a screen; capsys would lose what its thread writes while it is read."""
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        seen = Seen(directory, stderr)
        try:
            yield seen
        finally:
            seen.screen.close()


def test_the_output_of_a_job_is_shown_from_its_first_run_here_on(tmp_path: Path) -> None:
    with opened(tmp_path) as seen:
        seen.out.write_text("by somebody else\n")
        seen.screen.show([seen.spec])
        seen.acquire()

        with seen.out.open("a") as log:
            log.write("hello\n")
        seen.out.rename(seen.out.with_name("job.log.1"))
        seen.out.write_text("again\n")
        seen.err.write_text("oh \x1b[2Jno\n")
        seen.until("again\n")
        lines = seen.until("no\n")

    name = f"{seen.spec.name:<12}"
    output = [f"{name} | again", f"{name} | hello", f"{name} | oh \\x1b[2Jno"]
    assert sorted(lines) == sorted([*output, "lease.acquired"])


def test_the_output_of_a_job_that_nobody_asked_to_see_is_not_shown(tmp_path: Path) -> None:
    with opened(tmp_path) as seen:
        seen.acquire()
        seen.out.write_text("hello\n")
        seen.screen.say(Say("node.left"))

        assert seen.until("node.left\n") == ["lease.acquired", "node.left"]
