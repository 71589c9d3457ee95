"""What a benchmark is, and how one is found: a function with @benchmark in a file under bench/measures/."""

import importlib
import pkgutil
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from bench import measures
from bench.ground import Ground
from streams.errors import ConfigurationError

REPETITIONS = 3

Found = TypeVar("Found")
Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Measured:
    """A figure, and what the bare clients reach at the same work in the same run."""

    value: float
    limit: float


Run = Callable[[Ground], Measured]


@dataclass(frozen=True)
class Benchmark:
    """One figure that is measured, and what it is to reach."""

    name: str
    unit: str
    target: float
    better: Better
    run: Run

    def meets(self, measured: Measured) -> bool:
        return measured.value >= self.target if self.better == "higher" else measured.value <= self.target


_known: dict[str, Benchmark] = {}


def benchmark(*, name: str, unit: str, target: float, better: Better) -> Callable[[Run], Run]:
    """Declare the function below as the benchmark of this name."""

    def declare(run: Run) -> Run:
        if name in _known:
            raise ConfigurationError(f"declaring benchmark {name}: there is one of that name in {_known[name].run.__module__}")
        _known[name] = Benchmark(name, unit, target, better, run)
        return run

    return declare


def once_a_run(measure: Callable[[Ground], Found]) -> Callable[[Ground], Found]:
    """Measure for whichever benchmark asks first; the others, which are figures of the same, are told what came of it."""
    found: list[Found] = []

    def ask(ground: Ground) -> Found:
        if not found:
            found.append(measure(ground))
        return found[0]

    return ask


def chosen(only: str | None) -> list[Benchmark]:
    """All benchmarks in the order of their names, or those named, separated by commas."""
    for module in pkgutil.iter_modules(measures.__path__, measures.__name__ + "."):
        importlib.import_module(module.name)
    if only is None:
        return [_known[name] for name in sorted(_known)]
    names = [name.strip() for name in only.split(",") if name.strip()]
    if not names or (unknown := [name for name in names if name not in _known]):
        asked = ", ".join(unknown) if names else "nothing"
        raise ConfigurationError(f"choosing benchmarks: {asked} is none of them. Name some of: {', '.join(sorted(_known))}")
    return [_known[name] for name in names]


def median_of(ground: Ground, once: Callable[[int], Measured], form: str) -> Measured:
    """Take the median of several repetitions; value and limit take turns, so that a noisy minute falls on both."""
    taken: list[Measured] = []
    for turn in range(1, REPETITIONS + 1):
        taken.append(once(turn))
        ground.tell(f"{turn}/{REPETITIONS}: {taken[-1].value:{form}} beside {taken[-1].limit:{form}}")
    return Measured(statistics.median(each.value for each in taken), statistics.median(each.limit for each in taken))
