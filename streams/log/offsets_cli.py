"""`hookline offsets`: where each role reads, and how a person decides where it reads on after its position was lost."""

from typing import Annotated, Literal

import typer
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, TopicPartition
from rich.console import Console
from rich.table import Column, Table

from streams.errors import ConfigurationError
from streams.log.offsets import Mark, unpack
from streams.settings import settings
from topology import reach
from topology.flow import ROLES, Role

offsets_app = typer.Typer(no_args_is_help=True, help="Where each role reads, and where it shall read on.")
console = Console(highlight=False)

RoleName = Annotated[str, typer.Argument(help="A role, such as ladder.")]
TIMEOUT_S = 10.0


@offsets_app.command()
def show(role: RoleName) -> None:
    """Show what a role has committed in each partition, what is unfinished above it, and how much is left to read."""
    consumer, places = _consumer_and_places(_role(role))
    table = Table(Column("topic", overflow="fold"), "partition", "committed", "unfinished above", "end", "behind")
    for place in consumer.committed(places, TIMEOUT_S):
        _, end = consumer.get_watermark_offsets(TopicPartition(place.topic, place.partition), TIMEOUT_S)
        if place.offset < 0:
            table.add_row(place.topic, str(place.partition), "nothing yet", "", str(end), str(end))
        else:
            _, unfinished = unpack(Mark(place.offset, place.metadata or ""))
            table.add_row(
                place.topic, str(place.partition), str(place.offset), str(len(unfinished)), str(end), str(max(0, end - place.offset))
            )
    console.print(table)


@offsets_app.command()
def reset(
    role: RoleName,
    to: Annotated[Literal["earliest", "latest"], typer.Option(help="Read everything that is left again, or only what comes from now on.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
) -> None:
    """Decide where a stopped role reads on, in partitions whose position is lost. Positions that are known stay as they are."""
    consumer, places = _consumer_and_places(_role(role))
    lost = []
    for place in consumer.committed(places, TIMEOUT_S):
        low, end = consumer.get_watermark_offsets(TopicPartition(place.topic, place.partition), TIMEOUT_S)
        if not low <= place.offset <= end:
            lost.append(TopicPartition(place.topic, place.partition, low if to == "earliest" else end))
    if not lost:
        console.print(f"nothing to do: every position of {role} is known and can be read on from")
        return
    for place in lost:
        console.print(f"{place.topic}-{place.partition}: read on from {place.offset}")
    _refuse_while_running(_role(role))
    if not yes:
        typer.confirm("Shall it read on from there?", abort=True)
    try:
        consumer.commit(offsets=lost, asynchronous=False)
    except KafkaException as error:
        raise ConfigurationError(f"committing for {role}: {error.args[0].str()}. Stop its workers first") from error
    console.print(f"{len(lost)} positions of {role} set to the {to}")


def _role(name: str) -> Role:
    for role in ROLES:
        if role.name == name:
            return role
    raise ConfigurationError(f"there is no role {name!r}: the roles are {', '.join(role.name for role in ROLES)}")


def _group(role: Role) -> str:
    return f"{settings().topic_prefix}hookline-{role.name}"


def _consumer_and_places(role: Role) -> tuple[Consumer, list[TopicPartition]]:
    kafka = settings().kafka(reach.bootstrap_servers(settings()))
    consumer = Consumer({**kafka, "group.id": _group(role), "enable.auto.commit": False, "log_level": 0})
    numbers = range(settings().partitions)
    return consumer, [TopicPartition(topic.on_cluster(settings().topic_prefix), number) for topic in role.reads for number in numbers]


def _refuse_while_running(role: Role) -> None:
    described = reach.admin_client(settings()).describe_consumer_groups([_group(role)])[_group(role)].result(TIMEOUT_S)
    if described.state not in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD):
        raise ConfigurationError(
            f"role {role.name} has {len(described.members)} members at work. Stop them, wait for their session to end, and ask again"
        )
