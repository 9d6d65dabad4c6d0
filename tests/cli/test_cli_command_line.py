import importlib
import os
import subprocess
import sys

import pytest

from orchestrator import __version__, cli
from tests.cli.conftest import Run

HEAVY = {"orchestrator.core.nouns", "redis", "pydantic", "rich", "prometheus_client", "yaml", "psutil", "asyncio"}


@pytest.mark.parametrize("args", [["--help"], ["--version"], []], ids=["help", "version", "nothing"])
def test_help_costs_no_library_but_click(args: list[str]) -> None:
    code = (
        "import sys; from orchestrator.cli import main; status = main(sys.argv[1:]);"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)

    assert HEAVY & set(done.stderr.split()) == set()


def test_the_package_can_be_run() -> None:
    done = subprocess.run([sys.executable, "-m", "orchestrator", "version"], capture_output=True, text=True, check=True)

    assert done.stdout == f"orchestrator {__version__}\n"


@pytest.mark.parametrize(("name", "lazy"), [pair for pair in cli._COMMANDS.items() if pair[0] != "up"])
def test_the_list_of_commands_says_what_each_says_of_itself(name: str, lazy: cli._Lazy) -> None:
    command = getattr(importlib.import_module(f"orchestrator.cli.{lazy.module}"), lazy.attribute or name)

    assert command.name == name
    assert command.short_help == lazy.help
    assert command.help.startswith(lazy.help)


@pytest.mark.parametrize("name", ["status", "top", "lease", "next", "stop", "start", "validate"])
async def test_the_help_of_a_command_says_how_it_ends(run: Run, name: str) -> None:
    done = await run(name, "--help")

    assert done.status == 0
    assert "Exit status: 0" in done.out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        pytest.param(["statsu"], "no such command `statsu`; did you mean `status`", id="an unknown command"),
        pytest.param(["status", "--jsno"], "No such option '--jsno'. Did you mean '--json'?", id="an unknown option"),
        pytest.param(["stop"], "Missing argument 'JOB...'", id="a missing argument"),
        pytest.param(["next", "x", "-n", "0"], "0 is not in the range", id="a number out of range"),
        pytest.param(["stop", "x", "--timeout", "nan"], "nan is no number", id="no number"),
        pytest.param(["completion"], "Choose from: bash, zsh, fish", id="a missing choice"),
        pytest.param(["up", "--node", ""], "'--node': it is empty", id="a node without a name"),
        pytest.param(["up", "--redis", ""], "'--redis': it is empty", id="no url to run with"),
        pytest.param(["up", "--state-dir", ""], "'--state-dir': it is empty", id="no directory to run in"),
        pytest.param(["up", ""], "it is empty", id="no file to run"),
        pytest.param(["validate", ""], "it is empty", id="no file to check"),
        pytest.param(["status", "--file", ""], "'--file' / '-f': it is empty", id="no file"),
        pytest.param(["status", "--redis", ""], "'--redis': it is empty", id="no url"),
        pytest.param(["status", "--cluster", ""], "'--cluster': it is empty", id="no cluster"),
        pytest.param(["status", "--state-dir", ""], "'--state-dir': it is empty", id="no directory"),
    ],
)
async def test_a_slip_of_the_pen_is_named_and_ends_with_2(run: Run, args: list[str], said: str) -> None:
    done = await run(*args)

    assert done.status == 2
    assert done.out == ""
    assert done.err.startswith("orchestrator: ")
    assert said in done.err
    assert "--help` says more" in done.err
    assert len(done.err.splitlines()) == 2


@pytest.mark.parametrize("name", ["up", "validate"])
async def test_a_file_that_need_not_be_typed_is_shown_so(run: Run, name: str) -> None:
    assert "[FILE]" in (await run(name, "--help")).out.splitlines()[0]


async def test_nothing_typed_shows_the_help_and_ends_with_2(run: Run) -> None:
    done = await run()

    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("Usage: orchestrator")


async def test_an_error_is_one_line_that_can_only_be_read(run: Run) -> None:
    done = await run("validate", "no\x1b[2Jfile")

    assert (done.status, done.out) == (78, "")
    assert done.err.startswith(r"orchestrator: no\x1b[2Jfile: no such file; create it, or name another")
    assert len(done.err.splitlines()) == 1


def test_a_reader_that_went_away_is_no_error() -> None:
    code = "import sys; from orchestrator.cli import main; sys.stdin.read(); sys.exit(main(['schema']))"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.close()
    child.stdout = None

    _, err = child.communicate("", timeout=20)

    assert err == ""
    assert child.returncode == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_every_shell_gets_its_completion(run: Run, shell: str) -> None:
    done = await run("completion", shell)

    assert done.status == 0
    assert f"_ORCHESTRATOR_COMPLETE={shell}_complete" in done.out


def test_the_completion_knows_the_commands() -> None:
    environ = os.environ | {
        "_ORCHESTRATOR_COMPLETE": "bash_complete",
        "COMP_WORDS": "orchestrator sta",
        "COMP_CWORD": "1",
    }

    done = subprocess.run(
        [sys.executable, "-m", "orchestrator"], env=environ, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["plain,status", "plain,start"]


async def test_the_schema_is_the_shipped_one(run: Run) -> None:
    done = await run("schema")

    assert done.status == 0
    assert done.out.startswith('{\n  "$schema"')
