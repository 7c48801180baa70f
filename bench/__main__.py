"""`python -m bench`: options, then the runs, of which each adds to the record."""

import argparse
import os
import re
import resource
import shlex
import shutil
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import record
from bench.client import LoadError
from bench.machine import commit, this_machine
from bench.measure import LOADS, OWN_LOAD, Run
from bench.rows import ROWS, Row
from bench.server import OURS, Nsqd

_FILES = 20_000


def _command(text: str) -> tuple[str, ...]:
    words = shlex.split(text)
    if not words or not shutil.which(words[0]):
        raise argparse.ArgumentTypeError(f"no such program: {text!r}")
    return tuple(words)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        allow_abbrev=False,
        description="Measure our nsqd, alternately with another one. Sections: "
        + ", ".join(dict.fromkeys(row.section for row in ROWS))
        + ".",
    )
    add = parser.add_argument
    add("--peer-nsqd", type=_command, metavar="PATH", help="the other nsqd: a program, or a command")
    add(
        "--nsqd",
        type=_command,
        default=OURS,
        metavar="CMD",
        help="our nsqd (default: python -m nsq_apps.nsqd)",
    )
    add(
        "--load",
        type=_command,
        default=OWN_LOAD,
        metavar="CMD",
        help="another load generator (default: bench.load)",
    )
    add(
        "--only",
        type=re.compile,
        default=re.compile(""),
        metavar="RE",
        help="sections and rows whose name matches",
    )
    add("--store", default="", metavar="URL", help="for rows with a store (default: a directory of each run)")
    add("--rounds", type=int, default=3, help="runs of each side (default: 3)")
    add("--seconds", type=float, default=1.0, help="length of a run (default: 1)")
    add("--results", type=Path, default=record.RESULTS, metavar="DIR", help="folder of the record")
    add("--plot", type=Path, metavar="FILE", help="draw the rows pub-N as SVG")
    add("--peers", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peers:
        parser.error("--peers was removed: name the other nsqd with --peer-nsqd PATH")
    options.rows = [row for row in ROWS if options.only.search(row.section) or options.only.search(row.name)]
    if not options.rows:
        parser.error("--only: no section or row matches")
    return options


def _run(row: Row, role: str, options: argparse.Namespace) -> tuple[Run, str] | None:
    """Return a run with the version of the server; None if the row has no such side. Raise LoadError."""
    is_ours = role == record.OURS
    command = options.nsqd if is_ours or row.itself else options.peer_nsqd
    if command is None or (row.section == "spark" and not is_ours):
        return None
    os.sync()  # Each run starts without the write-back of the one before.
    flags = row.flags if is_ours else row.peer_flags
    with Nsqd(command, flags, with_standby=row.has_standby and is_ours, store_url=options.store) as nsqd:
        return LOADS[row.load](nsqd, row, options.load, options.seconds), nsqd.version


def _measure(row: Row, options: argparse.Namespace) -> dict[str, Any]:
    """Run both sides in turn, in an order that changes with each round; a side that fails runs no more."""
    runs: dict[str, list[Run]] = {}
    versions: dict[str, str] = {}
    failures: dict[str, str] = {}
    roles = [record.OURS, record.OTHER]
    for _ in range(options.rounds):
        for role in roles:
            try:
                found = None if role in failures else _run(row, role, options)
            except LoadError as error:
                failures[role] = " ".join(str(error).split())
            else:
                if found:
                    runs.setdefault(role, []).append(found[0])
                    versions[role] = found[1]
        roles.reverse()
    return {
        "section": row.section,
        "scenario": row.name,
        "text": row.text,
        "unit": row.unit,
        "arguments": row.arguments,
        "flags": {record.OURS: row.flags, record.OTHER: row.peer_flags},
        "lower_is_better": row.lower_is_better,
        "versions": versions,
        "failures": failures,
        "runs": {role: record.columns(some) for role, some in runs.items()},
    }


def main() -> None:
    options = _options()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES if hard < 0 else min(_FILES, hard), hard))
    now = datetime.now(UTC)
    words = [re.sub(r"(?<![\w.])/(?:[^/\s=]+/)+", "/path/to/", word) for word in sys.argv[1:]]
    content: dict[str, Any] = {
        "date": now.date().isoformat(),
        "recorded_at": now.isoformat(timespec="seconds"),
        "commit": commit(),
        "command": shlex.join(["python", "-m", "bench", *words]),
        "machine": asdict(this_machine()),
        "results": [],
    }
    path = record.new(content["commit"], options.results)
    print(f"{this_machine()}; commit {content['commit']}; {len(options.rows)} rows")
    for row in options.rows:
        content["results"].append(_measure(row, options))
        record.write(path, content)
        print(record.line(content["results"][-1]), flush=True)
    print("\n".join(record.tables(content)), f"\n\nrecorded in {path}")
    if options.plot:
        record.draw(content, options.plot)
    sys.exit(any(entry["failures"] for entry in content["results"]))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: the record has the rows that were finished")
