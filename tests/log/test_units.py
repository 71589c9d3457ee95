"""Which finished units may be committed, when some have seen the changes of others."""

from collections.abc import Mapping
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.log.offsets import Mark, Offsets
from streams.log.shard import Shard
from streams.log.simulated.log import SimulatedStore
from streams.log.state import State
from streams.log.units import Handout, Unit, committable
from tests.pipelines import IN

Graph = Mapping[str, str]
"""Units by a letter, each with the letters of those it waits for."""


def units_of(graph: Graph, taken: str = "") -> dict[str, Unit]:
    inlet = Shard(0, State(SimulatedStore()), None).open_inlet(IN, Offsets(Mark(0, "")))
    units = {letter: Unit(inlet, None) for letter in graph}
    for letter, waits_for in graph.items():
        units[letter].waits_for = tuple(units[other] for other in waits_for)
        units[letter].taken = letter in taken
    return units


def committable_of(graph: Graph, finished: str, taken: str = "") -> tuple[str, str]:
    units = units_of(graph, taken)
    letters = {unit: letter for letter, unit in units.items()}
    now, later = committable([units[letter] for letter in finished])
    return "".join(letters[unit] for unit in now), "".join(letters[unit] for unit in later)


@pytest.mark.parametrize(
    ("graph", "finished", "taken", "now", "later"),
    [
        pytest.param({}, "", "", "", "", id="nothing is finished"),
        pytest.param({"a": "", "b": ""}, "ba", "", "ba", "", id="nobody waits: all go, in the order they finished"),
        pytest.param({"a": "", "b": "a"}, "b", "", "", "b", id="one waits for an unfinished one"),
        pytest.param({"a": "", "b": "a"}, "b", "a", "b", "", id="one waits for a committed one"),
        pytest.param({"a": "", "b": "a"}, "ba", "", "ba", "", id="both go together, whichever finished first"),
        pytest.param({"a": "", "b": "a", "c": "b"}, "cb", "", "", "cb", id="a chain waits for its first link"),
        pytest.param({"a": "", "b": "a", "c": "b"}, "cba", "", "cba", "", id="a chain goes with its first link"),
        pytest.param({"a": "b", "b": "a"}, "ab", "", "ab", "", id="two that saw each other go together"),
        pytest.param({"a": "b", "b": "a"}, "a", "", "", "a", id="of two that saw each other none goes alone"),
        pytest.param({"a": "c", "b": "a", "c": "b"}, "abc", "", "abc", "", id="a ring goes together"),
        pytest.param({"a": "c", "b": "a", "c": "bd", "d": ""}, "abc", "", "", "abc", id="a ring waits for what one of it waits for"),
        pytest.param({"a": "", "b": "a", "c": "", "d": "c"}, "bcd", "", "cd", "b", id="who waits holds up nobody else"),
        pytest.param({"a": "", "b": "", "c": "ab"}, "ac", "", "a", "c", id="one waits for two and one is missing"),
    ],
)
def test_a_unit_goes_with_or_after_all_that_it_waits_for(graph: Graph, finished: str, taken: str, now: str, later: str) -> None:
    assert committable_of(graph, finished, taken) == (now, later)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, str, str]:
    letters = "abcdef"
    graph = {letter: "".join(sorted(draw(st.sets(st.sampled_from(letters), max_size=2)) - {letter})) for letter in letters}
    finished = draw(st.sets(st.sampled_from(letters)))
    taken = draw(st.sets(st.sampled_from(letters))) - finished
    return graph, "".join(sorted(finished)), "".join(sorted(taken))


@given(graphs())
def test_what_goes_is_the_largest_set_in_which_nobody_waits_for_anybody_outside(case: tuple[Graph, str, str]) -> None:
    graph, finished, taken = case
    closed = [
        set(some)
        for size in range(len(finished) + 1)
        for some in combinations(finished, size)
        if all(set(graph[one]) <= {*some, *taken} for one in some)
    ]
    assert set(committable_of(graph, finished, taken)[0]) == set.union(*closed)


def test_a_record_ends_with_the_last_of_its_units() -> None:
    inlet = units_of({"a": ""})["a"].inlet
    handout = Handout(3)
    assert [Unit(inlet, None, (), handout).ends_its_record() for _ in range(3)] == [False, False, True]
    assert Unit(inlet, None).ends_its_record()
