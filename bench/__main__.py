"""`python -m bench`: options, then the runs, then the table and the record."""

import re
import resource
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Never

import click
from rich.console import Console

from bench import page, record, report
from bench.duel import PEER, SUBJECT, Contender, Result, compare
from bench.machine import commit, this_machine
from bench.peers.setups import GO, OURS, find_command, find_program
from bench.scenario import Scenario, Work
from bench.scenarios import SCENARIOS
from bench.server import NSQD, NSQLOOKUPD, Daemon
from bench.sweeps import SWEEPS

_FILES = 20_000
_INTERRUPTED = 130
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


def _pattern(context: click.Context, parameter: click.Parameter, value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as error:
        raise click.BadParameter(f"not a regular expression: {error}") from None


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--only", default="", callback=_pattern, metavar="RE", help="Sections and rows whose name matches."
)
@click.option("--quick", is_flag=True, help="A part of the rows, one round, short runs: about five minutes.")
@click.option("--rounds", type=click.IntRange(1), help="Runs of each side.  [default: 1 to 3, by row]")
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
@click.option("--peer-nsqd", callback=_command, metavar="CMD", help="Another nsqd to run in turn with it.")
@click.option("--load", callback=_command, metavar="CMD", help="A neutral load generator, for the rows that need one.")
@click.option("--nsqlookupd", callback=_command, metavar="CMD", help="The subject of the lookup scenarios.")
@click.option("--peer-nsqlookupd", callback=_command, metavar="CMD", help="Another one to run in turn with it.")
@click.option(
    "--peer-tools",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A directory with another nsq_to_file, nsq_tail and to_nsq to run in turn with ours.",
)
@click.option("--seconds", type=click.FloatRange(0.1), help="Length of runs that go by time.")
@click.option("--messages", type=click.IntRange(1000), help="Messages in runs that go by count; most in others.")
@click.option(
    "--scratch",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="Where data directories are made.  [default: the system's temporary directory]",
)
@click.option("--record/--no-record", "recorded", default=True, help="Keep the figures.")
@click.option(
    "--results",
    default=record.RESULTS,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where figures are kept.  [default: bench/results, from which docs/performance.md is then written]",
)
def main(
    only: re.Pattern[str],
    quick: bool,
    rounds: int | None,
    folders: tuple[Path, ...],
    no_peers: bool,
    nsqd: tuple[str, ...] | None,
    peer_nsqd: tuple[str, ...] | None,
    load: tuple[str, ...] | None,
    nsqlookupd: tuple[str, ...] | None,
    peer_nsqlookupd: tuple[str, ...] | None,
    peer_tools: Path | None,
    seconds: float | None,
    messages: int | None,
    scratch: Path | None,
    recorded: bool,
    results: Path,
) -> None:
    """Measure nsqd, nsqlookupd, the tools, the client library, the console and Spark, side by side with others.

    The others are found in --peers and on PATH: Go's nsqd, nsqlookupd, nsq_to_file, nsq_tail and to_nsq; nats-server,
    redis-server, beanstalkd and rabbitmq-server.
    """
    if not no_peers:
        peer_nsqd = peer_nsqd or _found("nsqd", folders)
        peer_nsqlookupd = peer_nsqlookupd or _found("nsqlookupd", folders)
        tool = find_program("nsq_to_file", folders)
        peer_tools = peer_tools or (Path(tool).parent if tool else None)
    contenders = {
        NSQD: _contenders(NSQD, nsqd, peer_nsqd),
        NSQLOOKUPD: _contenders(NSQLOOKUPD, nsqlookupd, peer_nsqlookupd),
    }
    with_peer = {daemon for daemon, sides in contenders.items() if len(sides) > 1}
    scenarios = _chosen(only, with_peer, has_generator=load is not None, quick=quick)
    rounds = rounds or (1 if quick else None)
    seconds = seconds or (_QUICK_SECONDS if quick else None)
    messages = messages or (_QUICK_MESSAGES if quick else None)
    _allow_many_files()
    signal.signal(signal.SIGTERM, _interrupt)

    measured: list[Result] = []
    status = 0
    try:
        with _progress() as announce:
            for scenario in scenarios:
                work = scenario.work
                measured.append(
                    compare(
                        scenario,
                        _setups(scenario, nsqd, peer_nsqd, folders, no_peers=no_peers)
                        if scenario.setups
                        else _servers(scenario, contenders[scenario.daemon])
                        if work is None
                        else _workers(work, peer_tools),
                        rounds or scenario.rounds,
                        server_command=contenders[NSQD][0].command if work is not None else (),
                        seconds=seconds,
                        messages=messages,
                        scratch=scratch,
                        announce=announce,
                        generator=load or (),
                    )
                )
    except KeyboardInterrupt:
        click.echo("interrupted; scenarios that were finished:", err=True)
        status = _INTERRUPTED
    machine, revision = this_machine(), commit()
    click.echo(f"{machine}; commit {revision}")
    report.show(measured, Console())
    if recorded and measured:
        kind = "quick" if quick else "full"
        command = shlex.join(["python", "-m", "bench", *map(_portable, sys.argv[1:])])
        click.echo(f"recorded in {record.write(measured, machine, revision, kind, command, results)}")
        if results == record.RESULTS:
            page.write()
            click.echo(f"written: {page.PAGE}")
    sys.exit(status or any(SUBJECT in result.failures for result in measured))


def _found(name: str, folders: Iterable[Path]) -> tuple[str, ...] | None:
    path = find_program(name, folders)
    return (path,) if path else None


def _contenders(
    daemon: Daemon, command: tuple[str, ...] | None, peer_command: tuple[str, ...] | None
) -> list[Contender]:
    subject = Contender(SUBJECT, command or (sys.executable, "-m", daemon.module))
    return [subject, Contender(PEER, peer_command)] if peer_command else [subject]


def _setups(
    scenario: Scenario,
    nsqd: tuple[str, ...] | None,
    peer_nsqd: tuple[str, ...] | None,
    folders: Iterable[Path],
    *,
    no_peers: bool,
) -> list[Contender]:
    """The scenario's setups that are installed, the subject first."""
    contenders: list[Contender] = []
    for setup in scenario.setups:
        command = {OURS.program: nsqd, GO.program: peer_nsqd}.get(setup.program)
        if command is None and (setup.is_ours or not no_peers):
            command = find_command(setup, folders)
        if command is not None:
            contenders.append(Contender(setup.name if contenders else SUBJECT, command, setup))
    return contenders


def _servers(scenario: Scenario, contenders: list[Contender]) -> list[Contender]:
    subject = contenders[0]
    return [subject, Contender(PEER, subject.command)] if scenario.beside_itself else contenders


def _workers(work: Work, peer_tools: Path | None) -> list[Contender]:
    """A tool or library of ours, and what there is to compare it with."""
    python = (sys.executable, "-m")
    workers = [Contender(SUBJECT, (*python, *work.subject))]
    if isinstance(work.peer, tuple):
        workers.append(Contender(PEER, (*python, *work.peer)))
    elif work.peer is not None and peer_tools is not None:
        workers.append(Contender(PEER, (str(peer_tools / work.peer),)))
    return workers


def _chosen(only: re.Pattern[str], with_peer: Set[Daemon], *, has_generator: bool, quick: bool) -> list[Scenario]:
    """Those whose section or label matches; where the daemon has no peer, each load once."""
    possible = (s for s in (*SWEEPS, *SCENARIOS) if (has_generator or not s.generator) and (s.is_quick or not quick))
    chosen = [
        s for s in possible if (only.search(s.section) or only.search(s.label)) and _can_run(s, with_peer)
    ]
    if not chosen:
        raise click.BadParameter("no section or row matches", param_hint="--only")
    return chosen


def _can_run(scenario: Scenario, with_peer: Set[Daemon]) -> bool:
    has_subject = scenario.work is not None or bool(scenario.setups) or bool(scenario.generator)
    return has_subject or scenario.daemon in with_peer or scenario.label == scenario.load


def _allow_many_files() -> None:
    """For this process and so for its children, which hold thousands of connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _interrupt(number: int, frame: FrameType | None) -> Never:
    raise KeyboardInterrupt


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A line on stderr that says what is running; nothing in a pipe."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("starting") as status:
        yield status.update


if __name__ == "__main__":
    main()
