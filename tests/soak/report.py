"""Print the table of docs/reliability.md: `python -m tests.soak.report bench/results/soak-<date>-<commit>.json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.soak.sampling import FIGURES


def table(result: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a Markdown table: what each watched process used, and how much that grew."""
    yield "| process | what | median | growth after the warm-up | allowed |"
    yield "|---|---|---|---|---|"
    for process, figures in result["trends"].items():
        for name, (level, growth, allowed) in figures.items():
            yield f"| {process} | {FIGURES[name].title} | {level:.3g} | {growth:.2g} | {allowed:.3g} |"


if __name__ == "__main__":
    print(*table(json.loads(Path(sys.argv[1]).read_text())), sep="\n")
