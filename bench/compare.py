"""Name every row whose ratio to a peer changed by more than 5 %: `python -m bench.compare [OLD NEW]`.

Without names, it compares the newest two records of one kind (quick or full) that have a row in common. A ratio is the
median of alternating runs, so a machine that became slower changes none. A change is uncertain if the ratios of the old
runs and those of the new ones overlap, or if there was only one of either. Ends with status 1 if a row is certainly
worse.
"""

import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench import record

TOLERANCE = 0.05
_NOISY_CORES = 0.2
_SPREAD = "{:.2f} ({:.2f}–{:.2f})"


@dataclass(frozen=True, slots=True)
class Ratios:
    """How many times better ours was than a peer, in a row: a ratio for each pair of runs."""

    section: str
    row: str
    peer: str
    values: tuple[float, ...]

    @property
    def name(self) -> tuple[str, str, str]:
        return self.section, self.row, self.peer

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        return _SPREAD.format(self.median, min(self.values), max(self.values))


@dataclass(frozen=True, slots=True)
class Change:
    """A row before and after."""

    old: Ratios
    new: Ratios

    @property
    def share(self) -> float:
        """How much better it became: -0.1 is 10 % worse."""
        return self.new.median / self.old.median - 1

    @property
    def is_certain(self) -> bool:
        """True if all new runs were better, or all worse, than all old ones."""
        old, new = self.old.values, self.new.values
        return min(len(old), len(new)) > 1 and (min(new) > max(old) or max(new) < min(old))

    @property
    def kind(self) -> str:
        return ("worse" if self.share < 0 else "better") if self.is_certain else "uncertain"

    def __str__(self) -> str:
        section, row, peer = self.new.name
        return f"{self.kind}: {self.share:+.0%}  {section}, {row}, beside {peer}: {self.old} → {self.new}"


def rows(content: dict[str, Any]) -> dict[tuple[str, str, str], Ratios]:
    """Return the ratios of a record by section, row and peer."""
    found = (
        Ratios(entry["section"], entry["scenario"], peer, tuple(values))
        for entry in content["results"]
        for peer, values in entry["ratios"].items()
        if values
    )
    return {ratios.name: ratios for ratios in found}


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    """Return the rows of both records that changed by more than `TOLERANCE`: the certain ones first, by how much."""
    before, after = rows(old), rows(new)
    both = (Change(before[name], after[name]) for name in after if name in before)
    found = (change for change in both if abs(change.share) > TOLERANCE)
    return sorted(found, key=lambda change: (not change.is_certain, change.share))


def newest_two(records: Sequence[tuple[Path, dict[str, Any]]]) -> tuple[Path, Path] | None:
    """Return the paths of the older and the newer record, of records that are sorted with the newest first."""
    for number, (path, content) in enumerate(records, 1):
        for older_path, older in records[number:]:
            if older["kind"] == content["kind"] and rows(older).keys() & rows(content).keys():
                return older_path, path
    return None


def report(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """Yield what a reader wants to know: what was compared, and each change."""
    common = rows(old).keys() & rows(new).keys()
    yield f"{old['date']} {old['commit']} → {new['date']} {new['commit']}: {len(common)} ratios in both"
    if old["machine"] != new["machine"]:
        yield "They were measured on different machines."
    for age, content in (("old", old), ("new", new)):
        if (others := _others_cores(content)) > _NOISY_CORES:
            yield f"Other processes used {others:.1f} cores during the {age} runs: its ratios vary more than they show."
    changed = changes(old, new)
    yield from map(str, changed)
    counts = Counter(change.kind for change in changed)
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("worse", "better", "uncertain"))
    yield f"{len(changed)} changed by more than {TOLERANCE:.0%}: {kinds}"


def _others_cores(content: dict[str, Any]) -> float:
    """Return how many processors other processes used during the runs of a record, as a median."""
    runs = (run for entry in content["results"] for some in entry["runs"].values() for run in some)
    return statistics.median(run["others_cpu_s"] / run["elapsed_s"] for run in runs)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("old", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("new", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(old: Path | None, new: Path | None) -> None:
    """Compare two records of bench/results. Default: the newest two of the same kind."""
    if old is None or new is None:
        pair = newest_two(record.read_all())
        if pair is None:
            raise click.UsageError("bench/results has no two records of one kind with a common row")
        old, new = pair
    before, after = map(record.read, (old, new))
    for line in report(before, after):
        click.echo(line)
    sys.exit(any(change.kind == "worse" for change in changes(before, after)))


if __name__ == "__main__":
    main()
