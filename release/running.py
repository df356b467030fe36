"""Steps of a check: each says what it found, or fails with sentences that say what to mend."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["Failed", "Skipped", "Step", "run", "run_steps"]

Step = Callable[[], str]


class Failed(Exception):  # noqa: N818 - it is an outcome
    """What a step found wrong, one sentence each."""

    def __init__(self, *sentences: str) -> None:
        super().__init__("\n".join(sentences))


class Skipped(Exception):  # noqa: N818 - it is an outcome
    """Why a step could not be tried on this machine."""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command away from the sources, and return what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"`{' '.join(words)}` ended with {done.returncode}:", done.stdout + done.stderr)
    return done.stdout


def run_steps(steps: Sequence[tuple[str, Step]]) -> bool:
    """Run steps one after the other, tell how each ends, and return whether none failed."""
    outcomes: Counter[str] = Counter()
    for number, (name, step) in enumerate(steps, 1):
        print(f"[{number}/{len(steps)}] {name} …", flush=True)
        start = time.monotonic()
        outcome, said = _outcome(step)
        outcomes[outcome] += 1
        words = said if outcome == "passed" else f"{outcome.upper()}: {said}"
        print(f"      {words} ({time.monotonic() - start:.0f} s)".replace("\n", "\n      "), flush=True)
    print(", ".join(f"{outcomes[one]} {one}" for one in ("passed", "failed", "skipped")), flush=True)
    return outcomes["failed"] == 0


def _outcome(step: Step) -> tuple[str, str]:
    try:
        return "passed", step()
    except Failed as failure:
        return "failed", str(failure)
    except Skipped as reason:
        return "skipped", str(reason)
