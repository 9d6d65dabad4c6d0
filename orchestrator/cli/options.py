"""The options by which a client command says which cluster it means, the same for all of them; what no option takes."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])


def filled(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty text: `--node "$NAME"` with an unset NAME is a slip, and no wish for the default."""
    if value == "":
        raise click.BadParameter("it is empty")
    return value


def a_number(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    """Refuse nan, which is outside of no range and never over."""
    if value is not None and math.isnan(value):
        raise click.BadParameter(f"{value} is no number")
    return value


@dataclass(frozen=True, slots=True)
class Asked:
    """What was typed; None where nothing was.

    Attributes:
        file: A jobs.yaml.
        redis: URL of the cluster's Redis.
        cluster: Its name, the prefix of its keys.
        state_dir: Where the nodes of this machine keep their things.
    """

    file: str | None = None
    redis: str | None = None
    cluster: str | None = None
    state_dir: str | None = None


def cluster_options(command: _Function) -> _Function:
    """Add `--file`, `--redis`, `--cluster` and `--state-dir`; the function gets them as one `asked`."""

    @click.option("--file", "-f", callback=filled, metavar="FILE", help="The jobs.yaml of the cluster.")
    @click.option("--redis", callback=filled, metavar="URL", help="Its Redis, as in redis://10.0.0.5:6379/0.")
    @click.option("--cluster", callback=filled, metavar="NAME", help="Its name.")
    @click.option("--state-dir", callback=filled, metavar="DIR", help="State directory of the nodes on this machine.")
    @wraps(command)
    def gathered(
        *args: object,
        file: str | None,
        redis: str | None,
        cluster: str | None,
        state_dir: str | None,
        **rest: object,
    ) -> object:
        return command(*args, asked=Asked(file, redis, cluster, state_dir), **rest)

    return gathered  # type: ignore[return-value] # click takes any function; its options changed with it


WHERE_HELP = """
Which cluster: --file and/or --redis with --cluster, else ORCHESTRATOR_FILE or ORCHESTRATOR_REDIS (with
--cluster), else ./jobs.yaml, else the node that runs on this machine."""
"""The paragraph that every client command's help ends with."""
