"""`reload`: one verb. The file of the nodes of this machine, or the configuration of single jobs.

A dry run and the real one print the same lines; the node that answers is the one that decides.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from time import sleep as pause

import click

from orchestrator import clock, control
from orchestrator.cli import talk, target
from orchestrator.cli.names import instances_meant
from orchestrator.cli.options import WHERE_HELP, Asked, a_number, cluster_options
from orchestrator.errors import ConfigError, OrchestratorError, UsageError
from orchestrator.view.phrases import clean

READING_PATIENCE_S = 60.0
"""10,000 jobs on a busy machine; a node that takes longer is hung."""
DEFAULT_PATIENCE_S = 60.0
LOOK_PERIOD_S = 0.2

_MEANINGS = {
    "added": ("+", "new"),
    "removed": ("-", "removed: it is stopped, and its lease given back"),
    "restarted": ("~", "restarted under its lease (a cron: by its next run)"),
    "moved": ("~", "under another lease or schedule: its lease is given back and asked for anew"),
    "applied": ("=", "taken over, nothing is restarted"),
}


@click.command("reload", short_help="Take over a changed jobs.yaml, or tell a job to reload.", epilog=WHERE_HELP)
@click.argument("jobs", nargs=-1, metavar="[JOB...]")
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option("--json", "as_json", is_flag=True, help="For machines; the shape is in docs/operations.md.")
@click.option("--no-wait", is_flag=True, help="Do not wait until every job runs by the new file.")
@click.option("--timeout", "patience_s", type=click.FloatRange(min=0), callback=a_number, metavar="SECONDS",
              default=DEFAULT_PATIENCE_S, show_default=True, help="Wait so long at most.")  # fmt: skip
@cluster_options
def reload(
    jobs: tuple[str, ...], *, dry_run: bool, as_json: bool, no_wait: bool, patience_s: float, asked: Asked
) -> int:
    """Take over a changed jobs.yaml, or tell a job to reload.

    Without JOB each node of the cluster on this machine reads its file anew. What did not change is not touched;
    a file that is refused changes nothing. SIGHUP to the node does the same. Prints every field that differs.

    With JOB the file is left alone, and the job's own `reload` (a signal or a command) is carried out.

    Exit status: 0 done, 1 no node runs here, or not within the time, 4 no such job, 78 the file is refused.
    """
    found = target.find(asked, os.environ, Path.cwd())
    if not found.nodes:
        raise OrchestratorError(f"no node of the cluster `{found.cluster}` runs on this machine; nothing to reload")
    if jobs and (dry_run or as_json):
        raise UsageError("--dry-run and --json are about the file; with JOB there is only the doing")
    if jobs:
        return _tell_jobs(jobs, found)
    answers = {node: _ask(node, "reload", dry_run=dry_run) for node in found.nodes}
    if as_json:
        talk.print_json({node.node: answer for node, answer in answers.items()})
    else:
        click.echo("".join(_lines(node.node, answer, dry_run=dry_run) for node, answer in answers.items()), nl=False)
    if problems := dict.fromkeys(text for answer in answers.values() for text in _texts(answer.get("problems"))):
        raise ConfigError(*problems)
    return 0 if dry_run or no_wait or _wait(found.nodes, patience_s) else OrchestratorError.exit_status


def _ask(node: target.LocalNode, op: str, **fields: object) -> dict[str, object]:
    try:
        return control.ask(node.socket, op, timeout_s=READING_PATIENCE_S, **fields)
    except (OSError, ValueError) as error:
        raise OrchestratorError(f"node {node.node} on this machine does not answer ({error}); is it frozen?") from None


def _tell_jobs(jobs: tuple[str, ...], found: target.Target) -> int:
    """Have single jobs read their own configuration; each on the node of this machine that runs it."""
    rows = {row.name for node in found.nodes if (view := node.view()) for row in view.jobs}
    status = 0
    for name in instances_meant(jobs, sorted(rows), found.spec):
        said = [_ask(node, "reload_job", job=name) for node in found.nodes]
        answer = next((each for each in said if each.get("ok")), said[0])
        if answer.get("ok"):
            click.echo(clean(f"reloaded: {name} ({answer.get('said')})"))
        else:
            talk.tell_error(f"not reloaded: {name}: {answer.get('said')}")
            status = OrchestratorError.exit_status
    return status


def _lines(node: str, answer: Mapping[str, object], *, dry_run: bool) -> str:
    """Return what changes on one node, a line for each job and one for each of its fields."""
    if not answer.get("ok"):
        return ""
    changes = [change for change in _list(answer.get("changes")) if isinstance(change, Mapping)]
    head = (
        f"{node}: {len(changes)} of its jobs {'would change' if dry_run else 'change'}"
        if changes
        else f"{node}: nothing changes"
    )
    lines = [head]
    width = max((len(str(change.get("job"))) for change in changes), default=0)
    for change in changes:
        mark, meaning = _MEANINGS.get(str(change.get("effect")), ("?", str(change.get("effect"))))
        lines.append(f"  {mark} {change.get('job')!s:<{width}}  {meaning}")
        fields = change.get("fields")
        for field, pair in fields.items() if isinstance(fields, Mapping) else ():
            old, new = [*_texts(pair), "-", "-"][:2]
            lines.append(f"      {field}: {old} -> {new}")
    return "".join(clean(line) + "\n" for line in lines)


def _wait(nodes: tuple[target.LocalNode, ...], patience_s: float) -> bool:
    """Wait until every job runs by the new file; say which do not in time."""
    until = clock.boot() + patience_s
    while True:
        waiting: dict[str, object] = {}
        for node in nodes:
            jobs = _ask(node, "reloading").get("jobs")
            waiting |= jobs if isinstance(jobs, dict) else {}
        if not waiting or clock.boot() >= until:
            break
        pause(LOOK_PERIOD_S)
    for job, why in waiting.items():
        talk.tell_error(f"not yet: {job} still runs by the old file" + (f" ({why})" if why else "") + "; it goes on")
    return not waiting


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [text for text in _list(value) if isinstance(text, str)]
