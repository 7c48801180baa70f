"""Check histories: `python -m tests.support.ledger FILE ...`. Exits with 1 if something is wrong, with 2 for a bad file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tests.support.ledger.checks import EXTRA_CHECKS
from tests.support.ledger.history import read_history
from tests.support.ledger.story import JOURNAL_DELAY_S
from tests.support.ledger.verdict import judge


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--journal-delay",
    default=JOURNAL_DELAY_S,
    show_default=True,
    help="Seconds before a kill that may be forgotten.",
)
@click.option(
    "--also",
    multiple=True,
    type=click.Choice(sorted(EXTRA_CHECKS)),
    help="Apply this check, too (repeatable).",
)
def main(files: tuple[Path, ...], journal_delay: float, also: tuple[str, ...]) -> None:
    """Check histories of clients, and print what is wrong in them."""
    is_sound = True
    for path in files:
        try:
            verdict = judge(read_history(path), journal_delay_s=journal_delay, also=also, source=str(path))
        except ValueError as error:
            click.echo(error, err=True)
            sys.exit(2)
        click.echo("\n".join(verdict.lines()))
        is_sound = is_sound and not verdict.findings
    sys.exit(0 if is_sound else 1)


if __name__ == "__main__":
    main()
