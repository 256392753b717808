"""The `headrace` command. Tools register themselves here as subcommands."""

import click

from headrace import __version__


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)
@click.version_option(__version__, "-V", "--version", prog_name="headrace", message="%(prog)s %(version)s")
def main() -> None:
    """Headrace: Apache Kafka's system in Python.

    This version holds the record batch format and the log. It has no tools yet.
    """
