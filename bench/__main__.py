"""`python -m bench`: options, then the runs, of which each adds to the record."""

import os
import re
import resource
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Never

import click

from bench import page, report
from bench.duel import SUBJECT, Conditions, Duel, Result
from bench.machine import commit, this_machine
from bench.plan import in_passes
from bench.programs import Programs
from bench.record import RESULTS, Record
from bench.scenario import Scenario
from bench.scenarios import SCENARIOS
from bench.server import NSQD
from bench.sweeps import SWEEPS

_FILES = 20_000
_INTERRUPTED = 130
_MINUTES, _QUICK_MINUTES = 55, 5
_QUICK_SECONDS = 0.5
_QUICK_MESSAGES = 100_000


def _portable(word: str) -> str:
    """Return a word of the command line without the directories of this machine."""
    return re.sub(r"(?<![\w.])/(?:[^/\s=]+/)+", "/path/to/", word)


def _command(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    words = shlex.split(value)
    if not words or not shutil.which(words[0]):
        raise click.BadParameter(f"no such program: {value!r}")
    return tuple(words)


def _command_in(folders: Iterable[Path], name: str) -> tuple[str, ...] | None:
    path = shutil.which(name, path=os.pathsep.join(map(str, folders)))
    return (path,) if path else None


def _pattern(context: click.Context, parameter: click.Parameter, value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as error:
        raise click.BadParameter(f"not a regular expression: {error}") from None


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--only", default="", callback=_pattern, metavar="RE", help="Sections and rows whose name matches."
)
@click.option("--quick", is_flag=True, help="A part of the rows, short runs: about five minutes.")
@click.option(
    "--minutes", type=click.FloatRange(0), help="Time after which no row gets another round.  [default: 55]"
)
@click.option("--rounds", type=click.IntRange(1), help="The most runs of each side.  [default: 1 to 3, by row]")
@click.option(
    "--peers",
    "folders",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the peers' programs are, before PATH. May be repeated.",
)
@click.option("--no-peers", is_flag=True, help="Measure only our programs, and the limit.")
@click.option("--nsqd", callback=_command, metavar="CMD", help="The subject.  [default: python -m nsq_apps.nsqd]")
@click.option("--nsqlookupd", callback=_command, metavar="CMD", help="The subject of the lookup scenarios.")
@click.option(
    "--load",
    callback=_command,
    metavar="CMD",
    help="A neutral load generator, for the rows that need one.  [default: `load` in --peers]",
)
@click.option("--seconds", type=click.FloatRange(0.1), help="Length of runs that go by time.")
@click.option("--messages", type=click.IntRange(1000), help="The most messages of a run.")
@click.option(
    "--scratch",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="Where data directories are made.  [default: the system's temporary directory]",
)
@click.option("--record/--no-record", "recorded", default=True, help="Keep the figures.")
@click.option(
    "--results",
    default=RESULTS,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where figures are kept.  [default: bench/results, from which docs/performance.md is then written]",
)
def main(
    only: re.Pattern[str],
    quick: bool,
    minutes: float | None,
    rounds: int | None,
    folders: tuple[Path, ...],
    no_peers: bool,
    nsqd: tuple[str, ...] | None,
    load: tuple[str, ...] | None,
    nsqlookupd: tuple[str, ...] | None,
    seconds: float | None,
    messages: int | None,
    scratch: Path | None,
    recorded: bool,
    results: Path,
) -> None:
    """Measure nsqd, nsqlookupd, the tools, the client library, the console and Spark, side by side with others.

    The others are found in --peers and on PATH: Go's nsqd, nsqlookupd, nsqadmin and tools; nats-server, redis-server,
    beanstalkd and rabbitmq-server. Every row is measured once, and then again while --minutes last. Each line of the
    output is a row after a round of it; the record has all rows that were measured so far.
    """
    programs = Programs(nsqd, nsqlookupd, None if no_peers else folders)
    load = load or _command_in(folders, "load")
    scenarios = chosen_rows(only, programs, has_generator=load is not None, quick=quick)
    minutes = minutes or (_QUICK_MINUTES if quick else _MINUTES)
    seconds = seconds or (_QUICK_SECONDS if quick else None)
    messages = messages or (_QUICK_MESSAGES if quick else None)
    _allow_many_files()
    signal.signal(signal.SIGTERM, _interrupt)

    started_s = time.monotonic()
    machine, revision = this_machine(), commit()
    click.echo(f"{machine}; commit {revision}; {len(scenarios)} rows, {minutes:g} minutes")
    command = shlex.join(["python", "-m", "bench", *map(_portable, sys.argv[1:])])
    record = Record(machine, revision, "quick" if quick else "full", command, results) if recorded else None
    duels = []
    for scenario in scenarios:
        conditions = Conditions(seconds, messages, scratch, load or (), programs.command(NSQD), _announce)
        duels.append(Duel(scenario, programs.contenders(scenario), rounds or scenario.rounds, conditions))
    status = 0
    try:
        for duel in in_passes(duels, lambda: minutes * 60 - (time.monotonic() - started_s)):
            duel.run_round()
            passed_s = round(time.monotonic() - started_s)
            click.echo(f"{passed_s // 60:3}:{passed_s % 60:02} {report.line(duel.result)} ({duel.progress})")
            if record is not None:
                record.write(_measured(duels))
    except KeyboardInterrupt:
        click.echo("interrupted: the record has the rounds that were finished", err=True)
        status = _INTERRUPTED
    if record is not None:
        click.echo(f"recorded in {record.path}")
        if results == RESULTS:
            page.write()
            click.echo(f"written: {page.PAGE}")
    sys.exit(status or any(SUBJECT in result.failures for result in _measured(duels)))


def _measured(duels: Iterable[Duel]) -> list[Result]:
    return [duel.result for duel in duels if duel.result.runs or duel.result.failures]


def chosen_rows(only: re.Pattern[str], programs: Programs, *, has_generator: bool, quick: bool) -> list[Scenario]:
    """Return the rows whose section or label matches, and whose servers are there; those of one round, which are long,
    last."""
    possible = (s for s in (*SWEEPS, *SCENARIOS) if (has_generator or not s.generator) and (s.is_quick or not quick))
    chosen = [s for s in possible if (only.search(s.section) or only.search(s.label)) and programs.can_run(s)]
    if not chosen:
        raise click.BadParameter("no section or row matches", param_hint="--only")
    return sorted(chosen, key=lambda scenario: scenario.rounds == 1)


def _allow_many_files() -> None:
    """For this process and so for its children, which hold thousands of connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _interrupt(number: int, frame: FrameType | None) -> Never:
    raise KeyboardInterrupt


def _announce(text: str) -> None:
    """Say on a terminal what is running; nothing in a pipe."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}\r", err=True, nl=False)


if __name__ == "__main__":
    main()
