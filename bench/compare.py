"""Name every row whose ratio to the other nsqd changed by more than 5 %: `python -m bench.compare [OLD NEW]`.

Without names, it compares the newest two records that have a row in common. A ratio is the median of alternating runs,
so a machine that became slower changes none. A change is uncertain if the ratios of the old runs and those of the new
ones overlap, or if there was only one of either. Ends with status 1 if a row is certainly worse.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import record

TOLERANCE = 0.05
Rows = dict[tuple[str, str], list[float]]


def rows(content: dict[str, Any]) -> Rows:
    """Return the ratios of a record, by row and other server."""
    found = {}
    for entry in content["results"]:
        for role in entry["runs"].keys() - {record.OURS}:
            if ratios := record.ratios(entry, role):
                found[entry["scenario"], role] = ratios
    return found


def changes(old: Rows, new: Rows) -> Iterator[tuple[str, str]]:
    """Yield better, worse or uncertain, and a line of text, for each row that changed."""
    for name in new.keys() & old.keys():
        before, after = old[name], new[name]
        share = statistics.median(after) / statistics.median(before) - 1
        if abs(share) > TOLERANCE:
            kind = "worse" if share < 0 else "better"
            if min(len(before), len(after)) < 2 or (max(before) >= min(after) and max(after) >= min(before)):
                kind = "uncertain"
            yield (
                kind,
                f"{kind}: {share:+.0%}  {name[0]}, compared with {name[1]}: {_text(before)} → {_text(after)}",
            )


def _text(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def newest_two() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the contents of the older and the newer record. Exits if no two have a row in common."""
    found = [content for _, content in record.read_all()]
    for number, newer in enumerate(found, 1):
        for older in found[number:]:
            if rows(older).keys() & rows(newer).keys():
                return older, newer
    raise SystemExit("bench/results has no two records with a row in common")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description="Compare two records.")
    parser.add_argument("records", nargs="*", type=Path, metavar="OLD NEW", help="default: the newest two")
    names = parser.parse_args().records
    if len(names) not in (0, 2):
        parser.error("name two records, or none")
    old, new = (json.loads(name.read_text()) for name in names) if names else newest_two()
    before = rows(old)
    after = rows(new)
    both = len(before.keys() & after.keys())
    print(f"{old['date']} {old['commit']} → {new['date']} {new['commit']}: {both} ratios in both")
    if old["machine"] != new["machine"]:
        print("They were measured on different machines.")
    found = sorted(changes(before, after), reverse=True)
    for _, text in found:
        print(text)
    print(f"{len(found)} changed by more than {TOLERANCE:.0%}")
    sys.exit(any(kind == "worse" for kind, _ in found))


if __name__ == "__main__":
    main()
