"""What an attack is: something that a user, a stranger's file or a fault may do, and the promise that has to hold.

Each module beside this one has a list `ATTACKS`. `python benchmarks/attacks` (or `make attack`) runs them all with a
seed, writes benchmarks/results/attacks.json, and `benchmarks/tables.py` makes the table of docs/reliability.md from it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np


@dataclass
class Tally:
    """How often something was tried, and what did not hold, in one line each; `skipped` says why nothing was tried.

    `unanswered` counts the tries whose outcome cannot be seen, such as a server that only hung up.
    """

    tried: int = 0
    unanswered: int = 0
    broken: list[str] = field(default_factory=list)
    skipped: str = ""

    def check(self, holds: bool, what: str) -> None:
        """Count one try; `what` says what went wrong where it does not hold."""
        self.tried += 1
        if not holds:
            self.broken.append(what)

    @property
    def held(self) -> int:
        """How many tries were seen to hold."""
        return self.tried - self.unanswered - len(self.broken)


@dataclass(frozen=True)
class Attack:
    """One kind of attack.

    Args:
        name: A short name, by which `python benchmarks/attacks NAME` runs it alone.
        tries: What is done, in one line for the table.
        promise: What has to hold, in one line for the table.
        run: Called with a random generator and an empty folder.
        mended: What it found when it was first run and what was changed; empty where everything held.
        test: The test that keeps it so.
    """

    name: str
    tries: str
    promise: str
    run: Callable[[np.random.Generator, Path], Tally]
    mended: str = ""
    test: str = ""
