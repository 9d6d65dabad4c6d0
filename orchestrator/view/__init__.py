"""What people see in a terminal, drawn from `core/snapshot.py`'s and `core/past.py`'s shapes alone.

Knows states, durations, colours and widths; must never know Redis, a socket, a file, a key that was typed
or a clock: `now_utc` comes in as an argument, so that the same picture always draws the same text.

Rules:
1. A colour never stands alone: each has its glyph, and each state its word (no-colour.org, colour blindness).
2. What came from Redis is text of strangers: it goes through `phrases.clean` and never through rich's markup.
3. Where nobody looks (a pipe, a file) there is no glyph, no bar and no box, and always the same columns.
"""
