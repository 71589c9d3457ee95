"""Draws the topology from its declaration: as text for golden files, as Mermaid, and as a table of topics."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from topology.flow import ACTORS, ROLES, TOPICS, Actor, Role
from topology.ladder import RUNG_TOPICS
from topology.topics import Topic

RUNGS_NAME = f"{RUNG_TOPICS[0]} … {RUNG_TOPICS[-1]}"


def flow_text(roles: Sequence[Role] = ROLES, actors: Sequence[Actor] = ACTORS, topics: Sequence[Topic] = TOPICS) -> str:
    """Write the whole flow in lines, so that a change of wiring is a line of a diff."""
    lines = []
    for actor in actors:
        lines += [f"actor {actor.name}: {actor.why}", *_line("writes", names(actor.writes)), ""]
    for role in roles:
        lines += [f"role {role.name}: {role.why}", *_line("reads", names(role.reads)), *_line("tables", names(role.tables))]
        lines += [*_line("writes", [*names(role.writes), *role.writes_families])]
        lines += [
            *_line("state", [str(role.changelog)] if role.changelog else []),
            *_line("effect", [role.effect] if role.effect else []),
            "",
        ]
    lines += [f"topic {topic}: key {topic.key}; schema {topic.schema or 'any'}; {kept(topic)}; {placed(topic)}" for topic in topics]
    return "\n".join(lines) + "\n"


def _line(label: str, items: Iterable[str]) -> list[str]:
    said = ", ".join(items)
    return [f"  {label:<7} {said}"] if said else []


def names(topics: Sequence[Topic]) -> list[str]:
    """Name topics, the rungs as one where all of them are there."""
    if not set(RUNG_TOPICS) <= set(topics):
        return [topic.name for topic in topics]
    return [*(topic.name for topic in topics if topic not in RUNG_TOPICS), RUNGS_NAME]


def kept(topic: Topic) -> str:
    """Say how long the topic's records stay."""
    if topic.cleanup == "compact":
        return "the last of each key"
    return f"kept {span(topic.retention)}" if topic.retention else "kept forever"


def placed(topic: Topic) -> str:
    """Say how the topic's records are spread."""
    return "partitioned by merchant" if topic.partitioned_by_merchant else "one partition"


def span(length: timedelta) -> str:
    """Write a length of time as a person would: `7 days 5 s`."""
    minutes, seconds = divmod(length.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((length.days, "days"), (hours, "h"), (minutes, "min"), (seconds, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def flow_mermaid(roles: Sequence[Role] = ROLES, actors: Sequence[Actor] = ACTORS) -> str:
    """Draw the flow for GitHub; each role's own changelog is left out, for it has one reader and one writer."""
    lines = ["flowchart LR"]
    for actor in actors:
        lines += [f"    {actor.name}([{actor.name}])", *(f"    {actor.name} --> {_node(name)}" for name in names(actor.writes))]
    for role in roles:
        here = f"role-{role.name}"
        lines.append(f'    {here}["<b>{role.name}</b>{f"<br/>{role.effect}" if role.effect else ""}"]')
        lines += [f"    {_node(name)} --> {here}" for name in names(role.reads)]
        lines += [f"    {_node(name)} -. whole .-> {here}" for name in names(role.tables)]
        lines += [f"    {here} --> {_node(name)}" for name in (*names(role.writes), *role.writes_families)]
    return "\n".join(lines) + "\n"


def _node(name: str) -> str:
    if name == RUNGS_NAME:
        return f'retry[("{name}")]'
    identifier = name.replace("<", "").replace(">", "")
    return f'{identifier}[("{name.replace("<", "&lt;").replace(">", "&gt;")}")]'


def topic_table(topics: Sequence[Topic] = TOPICS) -> str:
    """Write every topic as a row of a Markdown table."""
    rows = ["| topic | why | key | schema | kept | partitions |", "|---|---|---|---|---|---|"]
    for topic in topics:
        schema = f"`{topic.schema}`" if topic.schema else "any"
        rows.append(f"| `{topic}` | {topic.why} | {topic.key} | {schema} | {kept(topic)} | {placed(topic)} |")
    return "\n".join(rows) + "\n"
