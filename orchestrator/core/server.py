"""What a node believes of the Redis server behind one bucket: its memory and its clock.

An absent lease key proves nothing when the server may have forgotten it, or when the clock that runs
the ttl may have been moved (redis/redis#416: ttls run on the server's wall clock). So after either the
node looks, but takes nothing, for one longest ttl: the quarantine. By then every lease that was alive
has been put back by its holder or has run out on the holder's own clock.

Rules of this file:
1. Another epoch than the known one: quarantine of one longest ttl.
2. First contact: an epoch younger than a ttl: quarantine for the rest of the ttl; and in any case for two
   heartbeats and a request, since a node without a past cannot tell a lease that ran out from one that
   was deleted or whose end was skipped by a clock set forward, and a live holder puts that back meanwhile
   (found by the simulation). Our own `up` may vouch for the server (it started the embedded one alone, or
   was told `--new-cluster`): then there is none.
3. The server's clock is where it should be, give or take the request timeout, a slack for slewing, how exactly it was
   measured and the rate error since; anything else: quarantine. The tolerance is never below the request
   timeout: a server that was paused answers late and has not jumped.
4. A tick that may have been claimed in a memory that is lost counts as claimed: what was due before the
   loss is settled, what was due while no server answered is not. The loss was at most one heartbeat and
   one request after the last contact; where this node had none, or did not even ask (it was suspended), it
   was before the epoch's birth. A node that was cut off meanwhile is mistaken: a known limit.
5. Ticks are instants of the nodes' clocks, births are of the server's: the loss is kept on the boot clock
   as well, and the later of the two readings counts (found by the simulation: a server's clock set back).
6. A node answers for the ticks since its first contact, after a loss for those since the loss, and never for
   those of a time in which another held the lease: what was due while it waited for a lease that nobody held
   runs late, and is not the past of a new job. A lease that went with the lost memory was held by nobody since.
"""

from orchestrator.core.answers import ServerMet
from orchestrator.core.nouns import Bucket, Moment
from orchestrator.core.requests import MeetServer

NEVER = float("inf")

SLEW_SLACK_S = 0.3
"""NTP slews at most 0.5 ms a second; this is 600 s worth of it, far above what one heartbeat can bring."""


class Server:
    """The belief about one bucket's server.

    Attributes:
        epoch: Identity of its memory, "" before the first contact.
        why: Why it is in quarantine, in one clause for people.
        settled_ms: Ticks up to here, by the server's clock, may have been claimed in a memory that is lost.
    """

    __slots__ = (
        "_asked_at", "_away", "_doubt_at", "_error_s", "_heartbeat_s", "_known_since", "_lost_at", "_measured_at",
        "_met_ms", "_offset_at", "_offset_s", "_rate_error", "_request_timeout_s",
        "bucket", "epoch", "quarantine_until", "settled_ms", "why",
    )  # fmt: skip

    def __init__(
        self, bucket: Bucket, *, heartbeat_s: float, request_timeout_s: float, clock_rate_error: float
    ) -> None:
        """Begin without any belief."""
        self.bucket = bucket
        self.epoch = ""
        self.quarantine_until = 0.0
        self.why = ""
        self.settled_ms = 0
        self._met_ms = 0
        self._heartbeat_s = heartbeat_s
        self._request_timeout_s = request_timeout_s
        self._rate_error = clock_rate_error
        self._offset_s = self._offset_at = self._error_s = 0.0
        self._measured_at = 0.0
        self._asked_at = NEVER
        self._away = False
        self._lost_at = -NEVER
        self._doubt_at = -NEVER
        self._known_since = NEVER

    @property
    def ahead_s(self) -> float:
        """By how much its clock is ahead of our boot clock, as of the last answer."""
        return self._offset_s

    def meeting(self, now_boot: float) -> MeetServer:
        """Return the request that keeps this belief fresh; sent with every heartbeat."""
        self._away = self._away or now_boot - self._asked_at > 2 * self._heartbeat_s + self._request_timeout_s
        self._asked_at = now_boot
        return MeetServer(self.bucket, asked_at=now_boot)

    def quarantined(self, now_boot: float) -> bool:
        """Say whether only a cleanly released lease may be taken now."""
        return now_boot < self.quarantine_until

    def expected_ms(self, now_boot: float) -> int:
        """Return what the server's clock should show at `now_boot`."""
        return round((now_boot + self._offset_s) * 1000)

    def tolerance_ms(self, now_boot: float) -> int:
        """Return how far the server's clock may be off from what is expected."""
        return round(1000 * self._tolerance_s(now_boot))

    def lost_until_ms(self, now: Moment) -> int:
        """Return up to which tick one may have been claimed in a memory that is lost (rules 4 and 5)."""
        lost_ms = _utc_ms(self._lost_at, now) if self._lost_at > -NEVER else 0
        return min(max(self.settled_ms, lost_ms), round(1000 * now.utc))

    def doubt_ms(self, now: Moment) -> int:
        """Return the last contact with a memory that is lost, 0 if none was: what was due since is in doubt."""
        return _utc_ms(self._doubt_at, now) if self._doubt_at > -NEVER else 0

    def known_since_ms(self, now: Moment, *, at_least: float) -> int:
        """Return since when a node answers for the ticks of a job (rule 6).

        Args:
            now: Both clocks.
            at_least: The boot instant until which another node may have answered for them.
        """
        return _utc_ms(min(max(self._known_since, at_least), now.boot), now)

    def ended_with_its_memory(self, held_until: float, ttl_s: float) -> bool:
        """Say whether a lease that another node held stood in the memory that was lost, and was never seen in this one.

        Then nobody has answered for the ticks since the loss: had its holder put it back, a look would have seen a
        whole ttl.

        Args:
            held_until: Until when the other node may have held it, on the boot clock.
            ttl_s: Of the lease.
        """
        return held_until <= self._doubt_at + ttl_s * (1 + self._rate_error) + SLEW_SLACK_S

    def on_met(self, met: ServerMet, now_boot: float, longest_ttl_s: float, *, vouched: bool) -> str:
        """Compare the server that answered with the one we knew.

        Args:
            met: Its answer.
            now_boot: When the answer came.
            longest_ttl_s: Of any lease in this bucket, ours or a holder's, in seconds.
            vouched: A young epoch is no loss of data: this is a new cluster, and our `up` knows it.

        Returns:
            The reason of a quarantine that begins now, "" if none begins.
        """
        known, self.epoch = self.epoch, met.epoch
        jumped = bool(known) and not self._clock_is_where_expected(met.server_ms, met.asked_at, now_boot)
        if known != met.epoch and not (vouched and not known):
            self._settle(met, now_boot)
        if known != met.epoch:
            self._doubt_at = self._measured_at if known else -NEVER
            self._known_since = self._lost_at if known else now_boot
        self._measure(met, now_boot, anew=jumped or known != met.epoch)
        self._measured_at = now_boot
        self._met_ms = met.server_ms
        self._away = False
        ttl_s = longest_ttl_s * (1 + self._rate_error)
        if not known:
            return "" if vouched else self._first_contact(met, now_boot, ttl_s)
        if known != met.epoch:
            return self._quarantine(now_boot + ttl_s, "Redis lost data or another server answers")
        if jumped:
            return self._quarantine(now_boot + ttl_s, "the clock of Redis jumped")
        return ""

    def on_clock_refused(self, server_ms: int, asked_at: float, now_boot: float, longest_ttl_s: float) -> str:
        """Judge a refusal for the clock: a jump of the server's, or only our own request that came late."""
        if self._clock_is_where_expected(server_ms, asked_at, now_boot):
            return ""
        return self._quarantine(now_boot + longest_ttl_s * (1 + self._rate_error), "the clock of Redis jumped")

    def _first_contact(self, met: ServerMet, now_boot: float, ttl_s: float) -> str:
        put_back_s = 2 * self._heartbeat_s + self._request_timeout_s
        rest_s = _rest_of_youth(met, ttl_s)
        if rest_s > put_back_s:
            return self._quarantine(now_boot + rest_s, "first contact with a fresh Redis")
        return self._quarantine(now_boot + put_back_s, "first contact with Redis")

    def _settle(self, met: ServerMet, now_boot: float) -> None:
        born_ms = _born_ms(met.epoch)
        born_at = now_boot - max(0, met.server_ms - born_ms) / 1000
        if self._met_ms and not self._away:
            after_s = self._heartbeat_s + self._request_timeout_s
            born_ms = min(born_ms, self._met_ms + round(1000 * after_s))
            born_at = min(born_at, self._measured_at + after_s)
        self.settled_ms = max(self.settled_ms, born_ms)
        self._lost_at = max(self._lost_at, born_at)

    def _measure(self, met: ServerMet, now_boot: float, *, anew: bool) -> None:
        """Take over how far its clock is ahead, unless we know it better: a busy node takes answers up late."""
        error_s = (now_boot - met.asked_at) / 2
        if anew or error_s <= self._error_s + self._rate_error * (now_boot - self._offset_at):
            self._offset_s = met.server_ms / 1000 - (met.asked_at + now_boot) / 2
            self._error_s, self._offset_at = error_s, now_boot

    def _clock_is_where_expected(self, server_ms: int, asked_at: float, replied_at: float) -> bool:
        server_s = server_ms / 1000
        slack_s = self._tolerance_s(replied_at) + self._error_s
        return asked_at + self._offset_s - slack_s <= server_s <= replied_at + self._offset_s + slack_s

    def _tolerance_s(self, now_boot: float) -> float:
        return self._request_timeout_s + SLEW_SLACK_S + self._rate_error * (now_boot - self._offset_at)

    def _quarantine(self, until: float, why: str) -> str:
        self.quarantine_until = max(self.quarantine_until, until)
        self.why = why
        return why


def _utc_ms(at_boot: float, now: Moment) -> int:
    """Return what the wall clock showed at an instant of the boot clock, in milliseconds."""
    return round(1000 * (now.utc - (now.boot - at_boot)))


def _rest_of_youth(met: ServerMet, ttl_s: float) -> float:
    """Return how long the epoch is still younger than a ttl; a birth in the future (a clock set back) is young."""
    age_s = (met.server_ms - _born_ms(met.epoch)) / 1000
    return ttl_s - age_s if age_s >= 0 else ttl_s


def _born_ms(epoch: str) -> int:
    """Return the birth of an epoch `born ms|random|run id`; 0 for something else (then it is of no age)."""
    born, _, _ = epoch.partition("|")
    return int(born) if born.isascii() and born.isdigit() else 0
