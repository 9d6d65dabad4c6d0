"""The command `orchestrator`: one file a family of commands, and the only place where the parts are wired.

    __init__    the group, and how every command ends        options   which cluster a command means, as typed
    target      finds that cluster                           picture   Redis and the local node, side by side
    status      status                                       lease     lease
    top         top (`terminal` owns keys and screen)        history   history
    schedule    next                                         file      validate, schema
    logs        logs (`log_places`: where they are,          screen    what `up` shows
                `log_file`: how they are read)
    orders      stop, start, pause, resume                   trigger   trigger (`asked_tick`: may that tick run?
                (`waiting`: are they carried out?)                     `triggered`: what became of it?)
    ordering    what every order needs                       up        up
    about       version, completion                          reload    reload (`reloading` is the node's side)
    names       job names as typed                           talk      stdout and stderr
    suggestion  did you mean ...?                            streams   stdin, stdout and stderr, if the shell left them

Rules:
1. stdout is data, stderr is talk. A command returns its exit status; `errors.py` has the list.
2. A subcommand's module is imported when it is called, and not before: `--help` costs click alone, and a
   command that asks the local node never pays for pydantic.
3. `main` is the only place that catches `OrchestratorError`.
"""

import contextlib
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from orchestrator import __version__
from orchestrator.cli import streams
from orchestrator.cli.suggestion import did_you_mean
from orchestrator.errors import OrchestratorError

_INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""
_FAILED = OrchestratorError.exit_status


@dataclass(frozen=True, slots=True)
class _Lazy:
    """Where a command is, and its one line in `--help` (a test holds it against the command's own)."""

    module: str
    help: str
    attribute: str = ""


_SECTIONS: dict[str, dict[str, _Lazy]] = {
    "Run": {
        "up": _Lazy("up", "Run the jobs of a file on this node."),
        "validate": _Lazy("file", "Check a jobs.yaml and say what it means."),
    },
    "Look": {
        "status": _Lazy("status", "Show every job: its state, its holder, its lease, and why."),
        "top": _Lazy("top", "Watch every job live; q quits."),
        "lease": _Lazy("lease", "Show who holds which lease, under which token, for how long."),
        "logs": _Lazy("logs", "Show what jobs have written; -f goes on with it."),
        "history": _Lazy("history", "Show how the runs of a job ended, and what became of its ticks."),
        "next": _Lazy("schedule", "Show when a cron job is due next.", "next_ticks"),
    },
    "Order": {
        "reload": _Lazy("reload", "Take over a changed jobs.yaml, or tell a job to reload."),
        "stop": _Lazy("orders", "Stop jobs, wherever they run, until they are started again."),
        "start": _Lazy("orders", "Start jobs that were stopped or have failed."),
        "pause": _Lazy("orders", "Let the ticks of cron jobs pass until they are resumed."),
        "resume": _Lazy("orders", "Let paused cron jobs run at their ticks again."),
        "trigger": _Lazy("trigger", "Run a cron job once, now, on the node that holds it."),
    },
    "Set up": {
        "schema": _Lazy("file", "Print the JSON Schema of jobs.yaml, for editors."),
        "completion": _Lazy("about", "Print the completion script of a shell."),
        "version": _Lazy("about", "Print the version."),
    },
}
_COMMANDS = {name: lazy for section in _SECTIONS.values() for name, lazy in section.items()}


class _LazyGroup(click.Group):
    """Imports a subcommand when it is called."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = _COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        module = importlib.import_module(f"orchestrator.cli.{lazy.module}")
        command = getattr(module, lazy.attribute or cmd_name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{lazy.module}.{cmd_name} is no command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # click suggests from the commands it has imported, and has imported none.
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"no such command `{name}`" + did_you_mean(name, list(_COMMANDS)))
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _COMMANDS))
        for title, section in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), lazy.help) for name, lazy in section.items()])


@click.command("orchestrator", cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="orchestrator", message="%(prog)s %(version)s")
def orchestrator() -> None:
    """Run services and cron jobs on several machines, each job on exactly one of them at a time.

    \b
    orchestrator up jobs.yaml     on every machine
    orchestrator status           from any of them

    Exit status: 0 done, 1 failed, 2 usage, 3 degraded, 4 no such job or node, 69 Redis unreachable,
    78 bad configuration.
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status and never raise for anybody's mistake but ours.

    Args:
        args: What was typed after `orchestrator`; None: take it from the process.
    """
    try:
        streams.open_what_is_closed()
        status = _run(args)
        unwritten = streams.settle(sys.stdout)
        if unwritten is not None:
            status = _tell_trouble(unwritten)
        streams.settle(sys.stderr)
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status


def _run(args: Sequence[str] | None) -> int:
    """Run one command; say what went wrong."""
    try:
        status = orchestrator.main(args, prog_name="orchestrator", standalone_mode=False)
    except OrchestratorError as error:
        _tell_error(str(error))
        return error.exit_status
    except click.ClickException as error:
        _tell_usage(error)
        return error.exit_code
    except click.Abort:
        return _INTERRUPTED
    except OSError as error:
        streams.settle(sys.stdout)
        return _tell_trouble(error)
    return status if isinstance(status, int) else 0


def _tell_trouble(problem: OSError) -> int:
    """Say what the system refused; not that the reader of stdout went away: there is nobody left to tell."""
    if not isinstance(problem, BrokenPipeError):
        said = problem.strerror or str(problem)
        _tell_error(f"{problem.filename}: {said}" if problem.filename else said)
    return _FAILED


def _tell_error(message: str) -> None:
    from orchestrator.cli.talk import tell_error  # noqa: PLC0415 - rich is loaded only where something went wrong

    tell_error(message)


def _tell_usage(error: click.ClickException) -> None:
    """Print a mistake on the command line, and where to read more."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        with contextlib.suppress(OSError):
            click.echo(error.format_message(), err=True)
        return
    # click lays lists of choices out with tabs and newlines.
    _tell_error(" ".join(error.format_message().split()))
    if isinstance(error, click.UsageError) and error.ctx is not None:
        with contextlib.suppress(OSError):
            click.echo(f"`{error.ctx.command_path} --help` says more", err=True)
