"""`hookline topology`: shows the topology, and makes a cluster agree with it."""

from typing import Annotated

import typer
from rich.console import Console

from streams.settings import settings
from topology import cluster, cluster_admin, reach, render
from topology.broker_cli import broker_app
from topology.cluster import AddPartitions, Change, ChangeConfig, Create, Plan, Refused
from topology.flow import TOPICS

__all__ = ["broker_app", "topology_app"]

topology_app = typer.Typer(no_args_is_help=True, help="The topics as declared, and a cluster that agrees with them.")
console = Console(highlight=False, soft_wrap=True)

MARKS: dict[type[Change], tuple[str, str]] = {
    Create: ("+", "green"),
    ChangeConfig: ("~", "yellow"),
    AddPartitions: ("~", "yellow"),
    Refused: ("!", "red"),
}


def _say(change: Change) -> None:
    mark, colour = MARKS[type(change)]
    console.print(f"{mark} {change}", style=colour, markup=False)


def _difference() -> Plan:
    wanted = cluster.wanted(TOPICS, settings())
    return cluster.difference(wanted, cluster_admin.read_cluster(reach.admin_client(settings()), {topic.name for topic in wanted}))


@topology_app.command()
def plan() -> None:
    """Show what `apply` would create (+), change (~) and refuse (!), and touch nothing."""
    found = _difference()
    for change in found.changes:
        _say(change)
    if not found.changes:
        console.print(f"nothing to do: all {len(TOPICS)} topics are as declared")


@topology_app.command()
def apply() -> None:
    """Create and change topics until they are as declared; delete nothing. Exits with 1 if anything was refused."""
    found = _difference()
    with console.status(f"applying {len(found.doable)} changes"):
        cluster_admin.apply(reach.admin_client(settings()), found, _say)
    for refused in found.refused:
        _say(refused)
    console.print(
        f"{len(found.doable)} changed, {len(found.refused)} refused"
        if found.changes
        else f"nothing to do: all {len(TOPICS)} topics are as declared"
    )
    raise typer.Exit(1 if found.refused else 0)


@topology_app.command()
def verify() -> None:
    """Exit with 1 and the list of differences when the cluster has drifted from what is declared."""
    found = _difference()
    for change in found.changes:
        _say(change)
    if found.changes:
        console.print(f"drifted: {len(found.changes)} differences. `hookline topology apply` mends those without !", style="red")
        raise typer.Exit(1)
    console.print(f"all {len(TOPICS)} topics are as declared", style="green")


@topology_app.command()
def show(mermaid: Annotated[bool, typer.Option("--mermaid", help="Draw it for a Markdown page.")] = False) -> None:
    """Show the flow: who reads and writes which topics, and how each topic keeps its records."""
    console.print(render.flow_mermaid() if mermaid else render.flow_text(), end="", markup=False)
