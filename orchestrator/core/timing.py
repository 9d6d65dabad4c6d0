"""The numbers of one lease, and the instants that follow from them.

Relations between the numbers are checked where they live (`LeaseTiming.problem`), so that no caller can forget them.
"""

from dataclasses import dataclass

from orchestrator.core.nouns import Deadlines


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """The numbers of one lease, in seconds. Where only the ttl is given the others scale with it.

    Attributes:
        ttl_s: How long a lease lives without renewal. The longest gap after a crash.
        heartbeat_s: How often it is renewed.
        request_timeout_s: When an unanswered request counts as failed.
        step_down_grace_s: From SIGTERM to SIGKILL when the lease cannot be renewed.
        kill_time_s: What killing and reaping a tree may take.
        margin_s: For a late scheduler.
        clock_rate_error: By how much two clocks' rates may differ (0.01: one percent).
    """

    ttl_s: float
    heartbeat_s: float
    request_timeout_s: float
    step_down_grace_s: float
    kill_time_s: float
    margin_s: float
    clock_rate_error: float = 0.01

    SHORTEST_TTL_S = 2.0

    @classmethod
    def scaled(cls, ttl_s: float, **given: float) -> "LeaseTiming":
        """Build a timing from its ttl; `given` overrides single numbers by attribute name."""
        defaults = {
            "heartbeat_s": ttl_s / 5,
            "request_timeout_s": min(1.0, ttl_s / 12),
            "step_down_grace_s": ttl_s / 3,
            "kill_time_s": min(1.0, ttl_s / 15),
            "margin_s": min(0.5, max(0.2, ttl_s / 30)),
        }
        return cls(ttl_s=ttl_s, **(defaults | given))

    def problem(self) -> str:
        """Return what is wrong with the relations of the numbers, with the rule and the numbers; "" if nothing.

        The rule leaves room, inside one ttl, for two missed heartbeats, a request that times out, an
        orderly step-down, the kill and a late scheduler (client-go states its relations alike).
        """
        if self.ttl_s < self.SHORTEST_TTL_S:
            return f"the shortest ttl is {self.SHORTEST_TTL_S:g}s (ttl is {self.ttl_s:g}s)"
        need = 2 * self.heartbeat_s + self.request_timeout_s + self.step_down_grace_s + self.kill_time_s + self.margin_s
        have = self.ttl_s * (1 - self.clock_rate_error)
        if have + 1e-9 >= need:
            return ""
        return (
            "ttl x (1 - clock_rate_error) must be at least 2 x heartbeat + request_timeout + step_down_grace"
            f" + kill_time + margin: {have:.4g}s < 2 x {self.heartbeat_s:.4g}s + {self.request_timeout_s:.4g}s"
            f" + {self.step_down_grace_s:.4g}s + {self.kill_time_s:.4g}s + {self.margin_s:.4g}s = {need:.4g}s;"
            f" raise ttl or lower heartbeat (ttl/5 would be {self.ttl_s / 5:.4g}s)"
        )

    def deadlines(self, asked_at: float, grace_s: float | None = None) -> Deadlines:
        """Return until when a run may live if the lease was last renewed by a request written at `asked_at`."""
        kill_at = self.ends_at(asked_at) - self.kill_time_s
        return Deadlines(term_at=kill_at - (self.step_down_grace_s if grace_s is None else grace_s), kill_at=kill_at)

    def ends_at(self, asked_at: float) -> float:
        """Return the instant from which the lease must be taken for lost."""
        return asked_at + self.ttl_s * (1 - self.clock_rate_error) - self.margin_s

    @property
    def ttl_ms(self) -> int:
        """The ttl in milliseconds."""
        return round(self.ttl_s * 1000)
