"""What may have been meant by a word that means nothing. Imports nothing heavy: `--help` pays for it too."""

import difflib
from collections.abc import Sequence

MOST_SUGGESTIONS = 3


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """Return a question to append to `no such ...`, "" where nothing is alike."""
    alike = difflib.get_close_matches(word, known, n=MOST_SUGGESTIONS)
    return f"; did you mean {' or '.join(f'`{other}`' for other in alike)}?" if alike else ""
