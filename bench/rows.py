"""Rows of the records, as the page shows them: the newest of each, its figures, and how sure they are."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.scenario import Scenario
from bench.scenarios import SCENARIOS
from bench.sweeps import SWEEPS

SUBJECT, PEER = "subject", "peer"
_BUSY_CORES = 0.9
_LATE_SHARE = 0.5  # of a 99th percentile
_LIBRARIES = ("ansq", "gnsq", "pynsq")
KNOWN = {(scenario.section, scenario.label): scenario for scenario in (*SWEEPS, *SCENARIOS)}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a record, and the record."""

    entry: dict[str, Any]
    content: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.entry["scenario"])

    @property
    def section(self) -> str:
        return str(self.entry["section"])

    @property
    def text(self) -> str:
        return KNOWN[self.section, self.name].text

    @property
    def roles(self) -> list[str]:
        """The subject, then its peers in the order of the setups."""
        order = [SUBJECT, *list(self.entry["setups"])[1:], PEER]
        return [role for role in order if self.entry["runs"].get(role)]

    @property
    def ours(self) -> str:
        return next(iter(self.entry["setups"]), "ours")

    def median(self, role: str, name: str = "value") -> float:
        return float(statistics.median(run[name] for run in self.entry["runs"][role]))

    def detail(self, role: str, name: str) -> float | None:
        """Return the median of a detail of the runs; None if they do not have it."""
        values = [run["details"][name] for run in self.entry["runs"].get(role, ()) if name in run["details"]]
        return statistics.median(values) if values else None

    def ratio(self, role: str) -> float:
        return float(self.entry["median_ratios"][role])

    def ratios(self, role: str) -> list[float]:
        return [float(ratio) for ratio in self.entry["ratios"][role]]

    @property
    def is_missed(self) -> bool:
        """True if ours is not as good as it is required to be."""
        least, below, above = (self.entry[name] for name in ("at_least", "below", "above"))
        value = self.median(SUBJECT)
        return (
            (least is not None and PEER in self.roles and self.ratio(PEER) < least)
            or (below is not None and value >= below)
            or (above is not None and value < above)
        )

    @property
    def peer_version(self) -> str:
        """The version of the peer; "" in old records of tools, which have that of the server."""
        is_known = not self.measures_program or "minutes" in self.content
        return str(self.entry["versions"][PEER]) if is_known else ""

    @property
    def measures_program(self) -> bool:
        """True if a tool or a client library is measured: the server is then a part of the load."""
        return KNOWN[self.section, self.name].work is not None

    def cpu_us(self, role: str) -> float | None:
        """Return the processor time a message of what is measured; None if it does not count messages."""
        if self.entry["unit"].endswith("/s"):
            name = "client_cpu_s" if self.measures_program else "server_cpu_s"
            return statistics.median(run[name] / run["messages"] * 1e6 for run in self.entry["runs"][role])
        return self.detail(role, "server_cpu_us")

    def is_held_back(self, role: str) -> bool:
        """True if the other side, mostly the generator, used its processor fully or was late: what is measured could
        do more."""
        late_ms, p99_ms = self.detail(role, "generator_late_p99_ms"), self.detail(role, "p99_ms")
        if late_ms is not None and p99_ms is not None:
            return late_ms > _LATE_SHARE * p99_ms
        if not self.entry["unit"].endswith("/s") or "client_cpu_s" not in self.entry["runs"][role][0]:
            return False
        elapsed_s = self.median(role, "elapsed_s")
        load, measured = ("server_cpu_s", "client_cpu_s") if self.measures_program else ("client_cpu_s", "server_cpu_s")
        consumers = self.detail(role, "consumer_cores") or 0
        busiest = max(self.median(role, load) / elapsed_s, consumers)
        return busiest > _BUSY_CORES > self.median(role, measured) / elapsed_s

    @property
    def program(self) -> str:
        """The name of the peer in a row of one subject and one peer: a library, one of Go's programs, or ours."""
        words = self.entry.get("commands", {}).get(PEER, "").split()
        if not words:
            return "another program"  # in a record of the first days
        if not words[0].startswith("python"):
            return f"Go's {words[0]}"
        return str(words[-1]) if words[-1] in _LIBRARIES else "ours"

    def is_ours(self, role: str) -> bool:
        """True if the peer is our own program in another setting."""
        return role == PEER and self.program == "ours"

    @property
    def others_cores(self) -> float:
        """How many processors other processes used during the runs, as a median."""
        runs = [run for some in self.entry["runs"].values() for run in some]
        return float(statistics.median(run["others_cpu_s"] / run["elapsed_s"] for run in runs))


Rows = dict[tuple[str, str], Row]


def newest_rows(records: Sequence[tuple[Path, dict[str, Any]]]) -> Rows:
    """Return the newest row of each scenario, of records that are sorted with the newest first. A row of a quick record
    is shown only if no full one has it."""
    found: Rows = {}
    full_ones_first = sorted((content for _, content in records), key=lambda content: content["kind"] != "full")
    for content in full_ones_first:
        for entry in content["results"]:
            name = (entry["section"], entry["scenario"])
            if name in KNOWN and entry["runs"].get(SUBJECT):
                found.setdefault(name, Row(entry, content))
    return found


def in_section(rows: Rows, section: str, scenarios: Iterable[Scenario]) -> list[Row]:
    """Return the section's rows in the order of the scenarios."""
    names = [scenario.label for scenario in scenarios if scenario.section == section]
    return [rows[section, name] for name in names if (section, name) in rows]
