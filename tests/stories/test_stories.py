"""Each story is played again, and everything must come of it as it stands in its file.

A changed transcript is a changed behaviour: write it anew (`pytest tests/stories --rewrite-stories`), read the
difference, and keep it only if you understand every line of it. The language is told in `script.py`.
"""

from pathlib import Path

import pytest

from tests.stories.script import replayed

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem.replace("_", " "))
def test_the_story_goes_as_it_is_told(story: Path, request: pytest.FixtureRequest) -> None:
    told = story.read_text(encoding="utf-8")

    played = replayed(told)

    if request.config.getoption("--rewrite-stories", default=False):
        story.write_text(played, encoding="utf-8")
        told = played
    assert told == played


def test_there_are_stories() -> None:
    assert STORIES
