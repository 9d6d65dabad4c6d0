"""Redis for clients (`status`, `lease`, `top`, `history`, `stop`, `trigger`): one reading, one order, no node.

Unlike a node, which must live through everything, a command has nobody to answer to but its user: trouble
is raised as `StoreUnreachableError` with the reason.
"""

from collections.abc import Mapping, Sequence

from orchestrator.core.nouns import Bucket, Intent, JobName, Member, NodeName, Trigger, parse_lease_value
from orchestrator.core.past import Past
from orchestrator.core.snapshot import ClusterReading, LeaseReading
from orchestrator.errors import StoreUnreachableError
from orchestrator.store import scripts
from orchestrator.store.calls import MAX_LEASES_A_CALL, SENSELESS, listed, number, parse_info, parse_open_runs, text
from orchestrator.store.client import Argument, Client, Command, Problem, Reply
from orchestrator.store.intents import parse_intents
from orchestrator.store.keys import Keys
from orchestrator.store.member_calls import order, pairs
from orchestrator.store.triggers import trigger_json

_ABSENT_MS = -2
"""PTTL's word for a key that is not there."""
_FIELDS = 6
"""What `lua/read.lua` returns of each lease."""


class StoreReader:
    """A client's link to Redis."""

    def __init__(self, url: str, *, cluster: str, timeout_s: float = 2.0) -> None:
        """Prepare; nothing is connected before the first call.

        Args:
            url: redis://, rediss:// or unix://.
            cluster: Prefix of all keys.
            timeout_s: Each call is over by then.

        Raises:
            ConfigError: The URL or the cluster's name is wrong.
        """
        self._keys = Keys(cluster)
        self._client = Client(url, name="orchestrator:client", timeout_s=timeout_s)

    async def read(self, jobs: Mapping[JobName, str]) -> ClusterReading:
        """Read everything `status` shows, in one pipeline.

        Args:
            jobs: Each job instance with its lease key (the `<job>` segment).

        Raises:
            StoreUnreachableError: Redis did not answer in time, or refused.
        """
        keys = self._keys
        chunks = self._chunks(jobs)
        asks = [
            Command(None, [], ["TIME"]),
            Command(None, [], ["ZRANGE", keys.nodes, 0, -1, "WITHSCORES"]),
            Command(None, [], ["HGETALL", keys.heads]),
            Command(None, [], ["HGETALL", keys.infos]),
            Command(None, [], ["HGETALL", keys.intents]),
            *(self._read_chunk(chunk, jobs) for chunk in chunks),
        ]
        replies = await self._ask(asks)
        try:
            return self._reading(jobs, chunks, replies)
        except (TypeError, ValueError, LookupError):
            raise self._unreachable(SENSELESS) from None

    async def order(self, jobs: Sequence[JobName], intent: Intent) -> int:
        """Give a standing order for jobs; return the server time of it, which is its `at_ms`.

        Raises:
            StoreUnreachableError: Redis did not answer in time, or refused; whether it stands is unknown.
        """
        (reply,) = await self._ask([order(jobs, intent, self._keys)])
        return number(reply)

    async def trigger(self, trigger: Trigger) -> int:
        """Order one run of a cron; return the server time of it, which is its `order_ms` (the given one is ignored).

        Raises:
            StoreUnreachableError: Redis did not answer in time, or refused (1,000 triggers wait already); whether it
                stands is unknown.
        """
        keys = self._keys
        args: list[Argument] = [keys.nudge, trigger_json(trigger)]
        (reply,) = await self._ask([Command(scripts.TRIGGER, [keys.intents, keys.intents_version], args)])
        return number(reply)

    async def past(self, key: str) -> Past:
        """Read what is known of a job's past.

        Args:
            key: Its lease key (the `<job>` segment).

        Raises:
            StoreUnreachableError: Redis did not answer in time, or refused.
        """
        of = self._keys.of(key)
        (reply,) = await self._ask([Command(scripts.PAST, [of.tick, of.history, of.ages], [])])
        try:
            return _past(listed(reply))
        except (TypeError, ValueError, LookupError):
            raise self._unreachable(SENSELESS) from None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _ask(self, commands: Sequence[Command]) -> list[Reply]:
        replies = await self._client.run(commands)
        for reply in replies:
            # What people broke by hand (a key of another type) is shown as nothing, not as an outage.
            if isinstance(reply, Problem) and not reply.clause.startswith("WRONGTYPE"):
                raise self._unreachable(reply.clause)
        return [[] if isinstance(reply, Problem) else reply for reply in replies]

    def _unreachable(self, clause: str) -> StoreUnreachableError:
        return StoreUnreachableError(f"Redis at {self._client.address.shown}: {clause}")

    def _chunks(self, jobs: Mapping[JobName, str]) -> list[list[JobName]]:
        buckets: dict[Bucket, list[JobName]] = {}
        for job, key in jobs.items():
            buckets.setdefault(self._keys.of(key).bucket, []).append(job)
        return [
            names[start : start + MAX_LEASES_A_CALL]
            for names in buckets.values()
            for start in range(0, len(names), MAX_LEASES_A_CALL)
        ]

    def _read_chunk(self, chunk: Sequence[JobName], jobs: Mapping[JobName, str]) -> Command:
        names: list[Argument] = []
        for job in chunk:
            of = self._keys.of(jobs[job])
            names += (of.lease, of.token, of.released, of.state, of.last)
        return Command(scripts.READ, names, [])

    def _reading(
        self, jobs: Mapping[JobName, str], chunks: Sequence[Sequence[JobName]], replies: Sequence[Reply]
    ) -> ClusterReading:
        time, nodes, heads, infos, intents, *leases = replies
        seconds, micros = listed(time)
        server_ms = number(seconds) * 1000 + number(micros) // 1000
        readings: dict[JobName, LeaseReading] = {}
        for chunk, said in zip(chunks, leases, strict=True):
            fields = listed(said)
            for i, job in enumerate(chunk):
                key = self._keys.of(jobs[job]).lease.decode()
                readings[job] = _lease_reading(key, fields[i * _FIELDS : (i + 1) * _FIELDS])
        return ClusterReading(
            members=_members(nodes, dict(pairs(heads)), dict(pairs(infos)), server_ms),
            intents=parse_intents(pairs(intents)),
            leases={job: readings[job] for job in jobs},
            server_ms=server_ms,
        )


def _lease_reading(key: str, fields: Sequence[Reply]) -> LeaseReading:
    said, left_ms, token, released, state, last = fields
    value = parse_lease_value(text(said))
    return LeaseReading(
        key=key,
        value=value,
        malformed=value is None and number(left_ms) != _ABSENT_MS,
        left_ms=number(left_ms) if value else 0,
        token=number(token),
        released=number(released),
        state=parse_info(state) or None,
        last=parse_info(last) or None,
    )


def _past(said: Sequence[Reply]) -> Past:
    since_ms, settled_ms, ran, skipped, missed, open_runs = map(number, said[:6])
    runs, records = said[6 : 6 + 2 * open_runs], said[6 + 2 * open_runs :]
    return Past(
        entries=tuple(entry for entry in map(parse_info, records) if entry),
        since_ms=since_ms,
        settled_ms=settled_ms,
        ran=ran,
        skipped=skipped,
        missed=missed,
        open=parse_open_runs(runs),
    )


def _members(nodes: Reply, heads: Mapping[str, str], infos: Mapping[str, str], server_ms: int) -> tuple[Member, ...]:
    members = []
    for name, expires_ms in pairs(nodes):
        incarnation, _, rest = heads.get(name, "").partition("|")
        since_ms = rest.partition("|")[0]
        if float(expires_ms) > server_ms and since_ms.isdigit():
            members.append(Member(NodeName(name), incarnation, int(since_ms), parse_info(infos.get(name))))
    return tuple(members)
