"""The flow's relations, and wirings that are refused."""

from dataclasses import replace

import pytest

from streams.errors import ConfigurationError
from topology import topics
from topology.flow import ACTORS, DELIVER, MERCHANT_TOPICS, ROLES, TOPICS, VIEW, Role, all_topics
from topology.ladder import RUNG_TOPICS


def test_every_role_with_an_agent_has_a_changelog_of_its_own() -> None:
    changelogs = [role.changelog for role in ROLES if role is not VIEW]
    assert [str(changelog) for changelog in changelogs] == [f"changelog-{role.name}" for role in ROLES if role is not VIEW]
    assert VIEW.changelog is None


def test_every_declared_topic_is_part_of_the_flow() -> None:
    declared = [topic for topic in vars(topics).values() if isinstance(topic, topics.Topic)]
    assert set(TOPICS) == {*declared, *RUNG_TOPICS}


@pytest.mark.parametrize(
    ("role", "reason"),
    [
        ({"reads": (topics.SUBSCRIPTIONS,)}, "subscriptions is not partitioned by merchant"),
        ({"tables": (topics.EVENTS,)}, "table events is not compacted"),
        ({"changelog": topics.EVENTS}, "changelog events must be compacted"),
    ],
)
def test_a_role_whose_sources_would_not_meet_is_refused(role: dict[str, tuple[topics.Topic, ...]], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        replace(DELIVER, **role)  # type: ignore[arg-type]


def test_a_topic_that_is_read_and_never_written_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="topic events is read and nobody writes it"):
        all_topics([MERCHANT_TOPICS], [])


def test_a_topic_that_is_declared_twice_is_refused() -> None:
    twin = Role("twin", "Reads a second topic of the same name.", reads=(replace(topics.EVENTS),), writes=())
    with pytest.raises(ConfigurationError, match="topic events is declared twice"):
        all_topics([*ROLES, twin], ACTORS)
