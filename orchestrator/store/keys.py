"""The names of all keys, and nothing else: no connection, no value.

    orchestrator:{<cluster>:<bucket>}:<key>:lease      token|node|incarnation, expires
                                           :token      the last token issued
                                           :released   what was last released cleanly, expires
                                           :alive      server ms until which a lease that was put back lives
                                           :tick       hash of a cron:
                                                         schedule     its identity
                                                         last         the newest settled tick
                                                         since        ticks in (since, last] are counted:
                                                         ran, skipped, missed
                                                         failures     failed ticks in a row
                                                         failed       server ms of the last of them
                                                         obeyed       the newest order obeyed or refused
                                                         run:<run>    mark of an open run (core/open_runs.py)
                                           :last       hash: token, run, record of the last run
                                           :history    hash: entry -> JSON of a run, or of ticks that did not run;
                                                         bytes: of all of them
                                           :ages       zset: entry -> server ms when it was first written
                                           :successes  zset: run -> server ms, strictly increasing (the newest 100)
                                           :state      JSON: what the holder shows
    orchestrator:{<cluster>:<bucket>}:epoch            born ms|random|run_id
    orchestrator:{<cluster>:m}:nodes                   zset: node -> expiry, server ms
                              :heads                   hash: node -> incarnation|since|ttl|revision|state id
                              :infos                   hash: node -> JSON of what it says of itself
                              :intents                 hash: job -> at ms|JSON {want, who, why, off_ms, catch_up}
                                                         !<order ms> -> order ms|JSON {job, tick, who, why}: a trigger
                                                         ! (once there was a trigger)
                              :intents-version         server ms of the newest order, triggers included
                              :nudge                   channel: a job's name, or "" for all of them

The part in braces is the hash tag: one slot of a Redis Cluster holds a whole bucket, so that one script
call may touch many of its leases. `m` is no bucket number.
"""

from collections.abc import Mapping

from orchestrator.core.nouns import Bucket
from orchestrator.core.spec import bucket_of
from orchestrator.errors import ConfigError

KEPT_NAMES = 10_000
"""So many keys' names are kept ready: ten times the jobs of a large node. More only costs building them again."""


class LeaseKeys:
    """The keys of one lease, as the bytes that go over the wire (building them anew each beat costs more)."""

    __slots__ = (
        "ages",
        "alive",
        "bucket",
        "history",
        "last",
        "lease",
        "released",
        "state",
        "successes",
        "tick",
        "token",
    )

    def __init__(self, bucket: Bucket, stem: str) -> None:
        """Name everything that belongs to the lease."""
        self.bucket = bucket
        self.lease = f"{stem}:lease".encode()
        self.token = f"{stem}:token".encode()
        self.released = f"{stem}:released".encode()
        self.alive = f"{stem}:alive".encode()
        self.tick = f"{stem}:tick".encode()
        self.last = f"{stem}:last".encode()
        self.history = f"{stem}:history".encode()
        self.ages = f"{stem}:ages".encode()
        self.successes = f"{stem}:successes".encode()
        self.state = f"{stem}:state".encode()


class Keys:
    """All key names of one cluster."""

    def __init__(self, cluster: str) -> None:
        """Take the cluster's name as the prefix.

        Raises:
            ConfigError: The name would move the hash tag.
        """
        if not cluster or any(letter in cluster for letter in "{}:|"):
            raise ConfigError(f"cluster: `{cluster}` must not be empty or contain any of {{ }} : |")
        self._cluster = cluster
        self._of: dict[str, LeaseKeys] = {}
        members = f"orchestrator:{{{cluster}:m}}"
        self.nodes = f"{members}:nodes"
        self.heads = f"{members}:heads"
        self.infos = f"{members}:infos"
        self.intents = f"{members}:intents"
        self.intents_version = f"{members}:intents-version"
        self.nudge = f"{members}:nudge"

    def of(self, key: str) -> LeaseKeys:
        """Return the names for a lease key's `<job>` segment."""
        known = self._of.get(key)
        if known is None:
            if len(self._of) >= KEPT_NAMES:
                self._of.clear()
            bucket = bucket_of(key)
            known = self._of[key] = LeaseKeys(bucket, f"{self._tag(bucket)}:{key}")
        return known

    def epoch(self, bucket: Bucket) -> str:
        """Return the name of a bucket's epoch."""
        return f"{self._tag(bucket)}:epoch"

    def parts(self, key: str) -> Mapping[str, str]:
        """Return all names of a lease by their last word, for people."""
        names = self.of(key)
        words = ("lease", "token", "released", "alive", "tick", "last", "history", "ages", "successes", "state")
        return {word: getattr(names, word).decode() for word in words}

    def _tag(self, bucket: Bucket) -> str:
        return f"orchestrator:{{{self._cluster}:{bucket}}}"
