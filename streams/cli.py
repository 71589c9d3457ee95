"""The `hookline` command: what an operator types, and errors that say what to do."""

import sys
from importlib.metadata import version as installed_version
from typing import Annotated

import typer
from rich.console import Console

from streams.commands.dlq_cli import dlq_app
from streams.commands.ledger_cli import ledger_app
from streams.commands.payouts_cli import payouts_app
from streams.commands.publish_cli import publish
from streams.commands.replay_cli import cancel, replay_app, retry_now
from streams.commands.status_cli import status
from streams.delivery.subscriptions_cli import subscriptions_app
from streams.errors import HooklineError
from streams.log.offsets_cli import offsets_app
from streams.logs import configure_logs
from streams.settings import settings
from topology.cli import broker_app, topology_app

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Signed webhooks and payouts on Kafka.")
app.add_typer(broker_app, name="broker")
app.add_typer(topology_app, name="topology")
app.add_typer(offsets_app, name="offsets")
app.add_typer(subscriptions_app, name="subscriptions")
app.add_typer(dlq_app, name="dlq")
app.add_typer(replay_app, name="replay")
app.add_typer(payouts_app, name="payouts")
app.add_typer(ledger_app, name="ledger")
for command in (publish, status, retry_now, cancel):
    app.command()(command)


@app.command()
def run(
    role: Annotated[str | None, typer.Option(help="Roles to run, separated by commas. Unset: all that there are.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Worker processes.")] = 1,
    apply_topology: Annotated[
        bool, typer.Option("--apply-topology", help="On a configured cluster too: create and change topics first.")
    ] = False,
) -> None:
    """Run the pipeline until Ctrl-C: on the configured cluster, or on a local broker that is started and stopped with it."""
    from streams import running  # its imports are the worker's: other commands start faster without them

    configure_logs(settings().log_level, settings().log_format)
    running.run(settings(), role, workers, apply_topology)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(installed_version("hookline"))


def main() -> None:
    """What the installed command calls."""
    try:
        app()
    except HooklineError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {error}", style="red", markup=False)
        sys.exit(1)
