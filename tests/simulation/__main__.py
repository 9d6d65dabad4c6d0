"""The simulation as a command.

python -m tests.simulation stories --hours 1000     no story may break a promise; prints the failing seeds
python -m tests.simulation mutants                  every rule switched off must be caught
python -m tests.simulation deletions --stories 400  lease keys deleted by hand: how often, and how long, two run
python -m tests.simulation replay SEED              one story with its transcript
"""

# ruff: noqa: T201 - a command speaks on stdout

import argparse
import os
import sys
from dataclasses import replace
from functools import partial
from itertools import count
from multiprocessing import Pool

from tests.simulation.hunt import hunt
from tests.simulation.mutants import MUTANTS
from tests.simulation.scenario import DELETIONS, SCENARIOS, Told, story, tell

MOST_SHOWN = 10


def main() -> int:
    """Run one of the four; 0 if all is as it must be."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    stories = commands.add_parser("stories", help="everyday stories, in all flavours")
    stories.add_argument("--hours", type=float, default=1000, help="cluster hours to live through")
    stories.add_argument("--first", type=int, default=0, help="seed of the first story")
    mutants = commands.add_parser("mutants", help="rules switched off")
    mutants.add_argument("--stories", type=int, default=1500, help="at most so many for each")
    mutants.add_argument("names", nargs="*", help="all, if none is named")
    deletions = commands.add_parser("deletions", help="lease keys deleted by hand")
    deletions.add_argument("--stories", type=int, default=400)
    replay = commands.add_parser("replay", help="one story")
    replay.add_argument("seed", type=int)
    replay.add_argument("--scenario", choices=SCENARIOS, help="as printed; the seed's own everyday flavour if absent")
    words = parser.parse_args()
    match words.command:
        case "stories":
            return tell_stories(words.hours, words.first)
        case "mutants":
            return catch_mutants(words.stories, words.names)
        case "deletions":
            return measure_deletions(words.stories)
        case _:
            return replay_story(words.seed, words.scenario)


def tell_stories(hours: float, first: int) -> int:
    """Tell stories until so many cluster hours have passed in them."""
    seconds, starts, told = 0.0, 0, 0
    broken: list[str] = []
    with Pool(os.cpu_count()) as pool:
        for tale in pool.imap_unordered(_brief_story, count(first), chunksize=8):
            seconds, starts, told = seconds + tale.simulated_s, starts + tale.starts, told + 1
            if tale.violation:
                broken.append(tale.violation)
                print(tale.violation, flush=True)
            if seconds >= 3600 * hours or len(broken) >= MOST_SHOWN:
                break
        pool.terminate()
    print(f"stories: {told}, {seconds / 3600:.0f} cluster hours, {starts} runs, {len(broken)} broken promises")
    return 1 if broken else 0


def catch_mutants(stories: int, names: list[str]) -> int:
    """Switch off one rule after the other; each must be caught by a story or by the test that it names."""
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    escaped = 0
    with Pool(os.cpu_count()) as pool:
        for verdict in pool.imap(partial(hunt, stories=stories), [mutant.name for mutant in chosen], chunksize=1):
            escaped += not verdict.convicted
            word = "caught" if verdict.convicted else "ESCAPED"
            print(f"{verdict.name:24} {word:8} {verdict.took_s:5.1f} s  {verdict.evidence}", flush=True)
    print(f"mutants: {len(chosen)} rules switched off, {escaped} escaped")
    return 1 if escaped or not chosen else 0


def measure_deletions(stories: int) -> int:
    """Say how often two ran at once after lease keys were deleted by hand, and for how long; none past its bound."""
    with Pool(os.cpu_count()) as pool:
        told = pool.map(partial(_brief, name=DELETIONS.name), range(stories), chunksize=8)
    broken = [tale.violation for tale in told if tale.violation]
    overlaps = [length_s for tale in told for length_s in tale.overlaps]
    print("\n".join(broken[:MOST_SHOWN]), end="\n" if broken else "")
    print(
        f"deletions: {stories} stories, {sum(bool(tale.overlaps) for tale in told)} met the known limit,"
        f" {len(overlaps)} overlaps of at most {max(overlaps, default=0.0):.1f} s, {len(broken)} broken promises"
    )
    return 1 if broken else 0


def replay_story(seed: int, name: str | None) -> int:
    """Print one story with its transcript."""
    told = tell(seed, SCENARIOS[name]) if name else story(seed)
    print("\n".join([*told.transcript, told.violation or "well"]))
    return 1 if told.violation else 0


def _brief_story(seed: int) -> Told:
    return replace(story(seed), transcript=())  # a transcript costs more to send than the story to tell


def _brief(seed: int, name: str) -> Told:
    return replace(tell(seed, SCENARIOS[name]), transcript=())


if __name__ == "__main__":
    sys.exit(main())
