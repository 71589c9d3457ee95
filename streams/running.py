"""`hookline run` from the first line to the last: a cluster, its topics, the workers, and everything stopped again."""

import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from streams import roles
from streams.delivery.keys import keyring
from streams.errors import HooklineError, TopologyDrift
from streams.payouts.agent import rules_of
from streams.settings import Settings
from streams.supervisor import Life, Supervisor
from streams.view.server import serving
from streams.worker import no_page, run_worker
from topology import broker, cluster, cluster_admin, docker, flow, reach
from topology.flow import TOPICS

console = Console(stderr=True, highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Started:
    """The cluster that is used, and whether it is ours to stop."""

    servers: str
    ours: bool


def say(line: str) -> None:
    """A progress line."""
    console.print(f"[dim]hookline:[/] {line}")


def run(settings: Settings, names: str | None, workers: int, apply_topology: bool) -> None:
    """Run roles in worker processes until Ctrl-C or SIGTERM."""
    chosen, began_s = roles.chosen(names), time.monotonic()
    if flow.DELIVER.name in chosen:
        keyring(settings)  # a missing key is told here once, and not by workers that end one after another
    if flow.PAYOUTS.name in chosen:
        rules_of(settings)  # likewise: a limit or a fee that cannot be read
    started = in_child(start_cluster, settings)
    try:
        in_child(prepare_topics, settings, started.servers, apply_topology or started.ours or not settings.bootstrap_servers)
        say(f"starting {workers} worker{'s' if workers > 1 else ''} with {', '.join(chosen)}")

        def work(life: Life) -> None:
            # One process has the view: the others would fight for its port.
            mine = [role for role in chosen if role != "view" or life.worker == 1]
            page = serving if "view" in mine else no_page
            equipment = roles.Equipment(mine, settings, settings.kafka(started.servers))
            folder = settings.state_dir / f"worker-{life.worker}"
            run_worker(equipment.agents, settings, started.servers, folder, life.ready, equipment.world, page)

        Supervisor(work, workers, on_ready=lambda addresses: tell_ready(started.servers, addresses, time.monotonic() - began_s)).run()
    finally:
        if started.ours:
            say("stopping the broker")
            in_child(stop_cluster, settings)
    say("stopped; what was written is kept for the next start")


def tell_ready(servers: str, addresses: Sequence[str], seconds: float) -> None:
    """The line that says it works, with what to open and what to try."""
    console.print(f"\n[bold green]Hookline is ready[/] after {seconds:.1f} s. Ctrl-C stops everything that was started.")
    for address in addresses:
        console.print(f"  page     {address}")
    console.print(f"  Kafka    {servers}")
    console.print(f"  try      {sys.argv[0]} topology show\n", markup=False)


# Each of these runs in a process of its own: a Kafka client's threads must not be in the one that forks the workers.


def start_cluster(settings: Settings) -> Started:
    """The configured cluster, or one on this machine."""
    servers = reach.running_servers(settings)
    if servers:
        say(f"using Kafka at {servers}")
        return Started(servers, ours=False)
    return Started(reach.ensure_cluster(settings, say), ours=True)


def prepare_topics(settings: Settings, servers: str, may_apply: bool) -> None:
    """Make the topics as declared, or say that they are not."""
    admin = reach.admin_client(settings)
    wanted = cluster.wanted(TOPICS, settings)
    plan = cluster.difference(wanted, cluster_admin.read_cluster(admin, {topic.name for topic in wanted}))
    if plan.doable and may_apply:
        say(f"creating or changing {len(plan.doable)} topics")
        cluster_admin.apply(admin, plan, lambda change: None)
    elif plan.doable:
        raise TopologyDrift(
            f"{len(plan.doable)} topics are not as declared. See `hookline topology plan`, then run `hookline topology apply`"
        )
    for refused in plan.refused:
        say(f"[yellow]{refused}[/]")


def stop_cluster(settings: Settings) -> None:
    """Stop what `start_cluster` started."""
    if not broker.stop(reach.broker_folder(settings), timeout_s=3).ended and docker.compose_servers():
        docker.compose_stop()


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a forked process and have its result, or its error."""
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()

    def call() -> None:
        try:
            theirs.send((function(*arguments), None))
        except HooklineError as error:
            theirs.send((None, error))

    process = context.Process(target=call)
    process.start()
    theirs.close()
    try:
        result, error = mine.recv()
    except EOFError:
        process.join()
        raise HooklineError(f"{function.__name__.replace('_', ' ')} ended with code {process.exitcode} and said nothing") from None
    process.join()
    if error is not None:
        raise error
    return result
