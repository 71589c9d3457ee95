"""`hookline broker`: starts, stops and shows a broker on this machine."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from streams.errors import ConfigurationError
from streams.settings import settings
from topology import broker, docker, reach
from topology.broker import Broker

broker_app = typer.Typer(no_args_is_help=True, help="A broker on this machine, for development and tests.")
console = Console(highlight=False, soft_wrap=True)

Folder = Annotated[Path | None, typer.Option(help="Where the broker keeps its files. Unset: `broker` in the state folder.")]


@broker_app.command()
def start(
    nodes: Annotated[int, typer.Option(help="1, or 3 to try what happens when one is lost.")] = 1,
    port: Annotated[int | None, typer.Option(min=1, max=65_533, help="The first node's port. Unset: the last one used, else 9092.")] = None,
    free_port: Annotated[bool, typer.Option("--free-port", help="Take any port that is free.")] = False,
    folder: Folder = None,
    local: Annotated[bool, typer.Option("--local", help="Run Kafka itself, also where Docker could.")] = False,
) -> None:
    """Start a broker unless it runs already, and print how to reach it: with Docker where it answers, else Kafka itself."""
    if free_port and port:
        raise ConfigurationError("starting a broker: --port and --free-port exclude each other; give one of them")
    as_it_comes = nodes == 1 and not (port or free_port or folder or local)
    if as_it_comes and not broker.status(_folder(folder)) and docker.docker_answers():
        console.print(f"running at {docker.compose_start()}, started by docker compose")
        return
    with console.status("starting") as spinner:
        running = broker.ensure(_folder(folder), nodes, 0 if free_port else port, spinner.update)
    _describe(running, "started" if running.started else "was running already")


@broker_app.command()
def stop(folder: Folder = None) -> None:
    """Stop the broker; its records stay for the next start."""
    stopped = broker.stop(_folder(folder))
    for node in stopped.killed:
        console.print(f"node {node} did not end in time and was killed; it recovers its records at the next start", style="yellow")
    if stopped.ended:
        console.print(f"stopped {len(stopped.ended)} node(s)")
    elif not folder and docker.compose_servers():
        docker.compose_stop()
        console.print("stopped the broker of docker compose")
    else:
        console.print("no broker was running")


@broker_app.command()
def status(folder: Folder = None) -> None:
    """Show whether a broker runs, and where; exits with 1 when none does."""
    running = broker.status(_folder(folder))
    if running:
        _describe(running, "running")
    elif not folder and (servers := docker.compose_servers()):
        console.print(f"running at {servers}, started by docker compose")
    else:
        console.print(f"no broker runs from {_folder(folder)}. Start one with `hookline broker start`")
        raise typer.Exit(1)


def _folder(given: Path | None) -> Path:
    return given or reach.broker_folder(settings())


def _describe(running: Broker, how: str) -> None:
    console.print(f"{how}: {running.bootstrap_servers}", style="green")
    for node in running.nodes:
        console.print(f"  node {node.id}  port {node.port}  pid {node.pid}  log {node.log}", markup=False)
