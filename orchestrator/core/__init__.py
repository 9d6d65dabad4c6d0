"""The room that decides and does nothing.

The law of this room, kept by `tests/test_house.py` and the import contracts:

1. Time comes in as `now: Moment`; `next_deadline()` says when to call again.
2. What happened comes in as an event (past tense); what must be done goes out as actions (imperative).
3. Same events at the same moments, same actions: no clock, socket, process, log or chance in here.
4. Late and repeated events are normal; they are told apart by token, run id or the time of asking.
5. A broken invariant raises `InvariantError`: the process ends and the leashes kill their runs.
"""
