"""The language of a story: one command a line, and under each command, indented, what came of it.

    job NAME [every=60] [ttl=15] [lasts=5] [exits=1] [stops_in=2|never] [...]   one more job in the file
    node NODE [new-cluster] [name=OTHER] [directory-of=NODE] [JOB.key=KEY]
                                                   start a node (again: as a new incarnation)
    at SECONDS [quietly]                           let time pass until then, and tell nothing of it
    crash | freeze | thaw NODE                     SIGKILL, SIGSTOP, SIGCONT of its main
    link NODE answers|silent|refuses|loses-answers its way to the store
    leave NODE [URGENCY]                           order it to go
    run NODE JOB ends|unproven|proven|stuck        what becomes of a run
    stop JOB [WHY] | start JOB                     a standing order of people
    flushall | restart [empty] | delete JOB | steal JOB NODE | clock SECONDS | claim JOB TICK NODE
                                                   what befalls the store
    status | holders                               what each node says of each job; which node runs it
    show news | everything                         all but uneventful heartbeats; every message

Lines that begin with `#` are for the reader. Time is seconds since the story began, at eight in the morning.
"""

import shlex
from collections.abc import Callable
from dataclasses import replace

from orchestrator.core.lease import NEVER
from orchestrator.core.messages import LeaveOrdered, RunStuck, RunUnproven
from orchestrator.core.nouns import Intent, JobName, LeaseValue, NodeName, Token
from orchestrator.core.spec import Backoff, JobSpec, Kind, Restart, ScheduleSpec, StopSpec
from orchestrator.core.timing import LeaseTiming
from tests.simulation.stored import Held, Ticks
from tests.stories.stage import Actor, Habit, Shown, Stage

INDENT = " "
"""What came of a command is indented; a story's own lines are not."""


def written(text: str) -> list[str]:
    """Return what people wrote of a story: the lines that are not indented."""
    return [line for line in text.splitlines() if not line.startswith(INDENT)]


def replayed(text: str) -> str:
    """Play a story and return it as it stands in its file: each command with what came of it."""
    play = Play()
    lines: list[str] = []
    for line in written(text):
        lines.append(line)
        if line and not line.startswith("#"):
            lines += play.command(line)
    return "\n".join(lines) + "\n"


class Play:
    """A story under way."""

    def __init__(self) -> None:
        """Begin with an empty stage."""
        self.stage = Stage()
        self._commands: dict[str, Callable[..., None]] = {
            "job": self._job,
            "node": self._node,
            "at": self._at,
            "crash": lambda node: self._actor(node).crash(),
            "freeze": self._freeze,
            "thaw": self._thaw,
            "link": self._link,
            "leave": self._leave,
            "run": self._run,
            "stop": lambda job, why="": self._order(job, "stopped", why),
            "start": lambda job, why="": self._order(job, "running", why),
            "flushall": self._flushall,
            "restart": self._restart,
            "delete": self.stage.store.delete,
            "steal": self._steal,
            "clock": self._clock,
            "claim": self._claim,
            "status": self._status,
            "holders": self._holders,
            "show": self._show,
        }

    def command(self, line: str) -> list[str]:
        """Carry out one line and return what came of it at once (an answer takes time: `at` shows it)."""
        self.stage.lines = []
        name, *words = shlex.split(line)
        self._commands[name](*words)
        return self.stage.lines

    def _actor(self, node: str) -> Actor:
        return self.stage.actors[node]

    # --- the file and the nodes -------------------------------------------------------------------

    def _job(self, name: str, *words: str) -> None:
        options = dict(word.split("=", 1) for word in words)
        self.stage.jobs.append(_job_spec(name, options))
        self.stage.habits[JobName(name)] = Habit(
            lasts_s=float(options.pop("lasts", NEVER)),
            exit_code=int(options.pop("exits", 0)),
            stops_in_s=NEVER if options.get("stops_in") == "never" else float(options.get("stops_in", 0.1)),
        )
        unknown = set(options) - KNOWN_OPTIONS
        assert not unknown, unknown

    def _node(self, node: str, *words: str) -> None:
        flags = dict(word.partition("=")[::2] for word in words)
        if node not in self.stage.actors:
            jobs = tuple(replace(job, key=flags.get(f"{job.name}.key", job.key)) for job in self.stage.jobs)
            state_id = f"state of {flags.get('directory-of', node)}"
            index = len(self.stage.actors) + 1
            self.stage.actors[node] = Actor(self.stage, node, index, state_id, jobs, NodeName(flags.get("name", node)))
        self._actor(node).start(new_cluster="new-cluster" in flags)

    def _freeze(self, node: str) -> None:
        self._actor(node).frozen = True

    def _thaw(self, node: str) -> None:
        self._actor(node).frozen = False
        self._actor(node).receive([])

    def _link(self, node: str, state: str) -> None:
        self._actor(node).link = state.replace("-", " ")

    def _leave(self, node: str, urgency: str = "0") -> None:
        self._actor(node).receive([LeaveOrdered(int(urgency))])

    def _run(self, node: str, job: str, fate: str) -> None:
        actor = self._actor(node)
        leash = actor.leash_of(job)
        match fate:
            case "ends":
                actor.gone(leash, leash.cause or "exit")
            case "unproven":
                leash.cause = "unproven"
                actor.receive([RunUnproven(leash.order.job, leash.order.run, "its leash died")])
            case "proven":
                leash.signal = 9
                actor.gone(leash, "unproven")
            case "stuck":
                pids = (4711, 4712)
                actor.receive([RunStuck(leash.order.job, leash.order.run, pids, "in uninterruptible sleep")])
            case _:
                raise AssertionError(fate)

    # --- time -------------------------------------------------------------------------------------

    def _at(self, seconds: str, how: str = "") -> None:
        if how == "quietly":
            shown, self.stage.shown = self.stage.shown, Shown.NOTHING
            self.stage.run_until(round(1000 * float(seconds)))
            self.stage.shown = shown
            return
        actors = self.stage.actors.values()
        before = {actor.index: (actor.answered, actor.unanswered) for actor in actors}
        self.stage.run_until(round(1000 * float(seconds)))
        for actor in actors:
            answered, unanswered = before[actor.index]
            told = _heartbeats(actor, actor.answered - answered, actor.unanswered - unanswered)
            if told and self.stage.shown is Shown.NEWS:
                self.stage.lines.append(f"          {actor.who}   ({told})")

    def _show(self, what: str) -> None:
        self.stage.shown = Shown(what)

    def _status(self) -> None:
        for actor in self.stage.actors.values():
            if actor.core is None:
                self.stage.lines.append(f"          {actor.who}   is not running")
                continue
            for row in actor.core.view(actor.now()).jobs:
                holder = f" (held by {row.holder} under {row.token})" if row.holder else ""
                why = f": {row.why}" if row.why else ""
                following = f", next {row.next}" if row.next else ""
                line = self.stage.teller.short(f"{row.name} is {row.state}{holder}{why}{following}")
                self.stage.lines.append(f"          {actor.who}   {line}")

    def _holders(self) -> None:
        running = [
            (row.name, actor.who)
            for actor in self.stage.actors.values()
            if actor.core is not None
            for row in actor.core.view(actor.now()).jobs
            if row.state == "running"
        ]
        for name in sorted({job.name for job in self.stage.jobs}):
            nodes = ", ".join(who for job, who in running if job == name)
            self.stage.lines.append(f"          {name} runs on {nodes or 'no node'}")

    # --- the store --------------------------------------------------------------------------------

    def _order(self, job: str, want: str, why: str) -> None:
        intent = Intent(want, "ann@desk", why, self.stage.server_ms())
        self.stage.store.order((JobName(job),), intent, self.stage.server_ms())

    def _flushall(self) -> None:
        self.stage.store.flush()

    def _restart(self, data: str = "with its data") -> None:
        if data == "empty":
            self.stage.store.flush()
        self.stage.store.restart()

    def _steal(self, job: str, node: str) -> None:
        token = Token(self.stage.server_ms())
        end_ms = self.stage.server_ms() + 15_000
        self.stage.store.data["token", job] = token
        self.stage.store.data["lease", job] = Held(LeaseValue(token, NodeName(node), "by hand"), end_ms)

    def _claim(self, job: str, tick: str, _node: str) -> None:
        ticks: Ticks = self.stage.store.data["tick", job]
        self.stage.store.data["tick", job] = ticks._replace(last_ms=round(1000 * float(tick)))

    def _clock(self, seconds: str) -> None:
        self.stage.server_ahead_ms += round(1000 * float(seconds))


KNOWN_OPTIONS = {"every", "ttl", "stops_in", "restart", "max_failures", "timeout", "misfire_grace", "stop_timeout"}


def _job_spec(name: str, options: dict[str, str]) -> JobSpec:
    every = options.get("every")
    return JobSpec(
        name=JobName(name),
        job=name,
        kind=Kind.CRON if every else Kind.SERVICE,
        argv=(name,),
        lease=LeaseTiming.scaled(float(options.get("ttl", 15))),
        key=name,
        definition="",
        schedule=ScheduleSpec(every_s=float(every)) if every else None,
        restart=Restart(options.get("restart", "always")),
        backoff=Backoff(max_failures=int(options["max_failures"]) if "max_failures" in options else None),
        stop=StopSpec(timeout_s=float(options.get("stop_timeout", 10))),
        timeout_s=float(options["timeout"]) if "timeout" in options else None,
        misfire_grace_s=float(options.get("misfire_grace", 600)),
    )


def _heartbeats(actor: Actor, answered: int, unanswered: int) -> str:
    counts = {"answered": answered, "unanswered": unanswered}
    beats = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    parts = [f"heartbeats: {beats}" if beats else ""]
    for leash in actor.leashes.values():
        if leash.deadlines is not None and beats and not leash.cause:
            term_at, kill_at = actor.since(leash.deadlines.term_at), actor.since(leash.deadlines.kill_at)
            parts.append(f"{leash.order.job} may run until {term_at:.3f}, at most {kill_at:.3f}")
    return actor.stage.teller.short("; ".join(filter(None, parts)))
