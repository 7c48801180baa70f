"""What a campaign of kills of nsq-worker has shown."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field

MSG_TIMEOUT_S = 2.0
# A message that can be delivered must have its effect within this time.
LIMIT_S = MSG_TIMEOUT_S + 1.0


@dataclass
class Figures:
    """What a campaign has shown. `waits_s` are of messages that could be delivered while everything ran."""

    kills: Counter[str] = field(default_factory=Counter)
    signals: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    accepted: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)
    dropped: int = 0  # by Once, by the id of the message
    again: int = 0  # effects of handlers without Once, beyond the first of each message
    stuck: Counter[str] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)
    longest_s: float = 0.0  # with the kills in between
    ups_s: list[float] = field(default_factory=list)
    orphans_s: list[float] = field(default_factory=list)
    ticks_s: list[float] = field(default_factory=list)
    jobs: int = 0
    lost_jobs: int = 0
    dead: int = 0
    odd_dead: int = 0
    odd_ends: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)

    @property
    def kill_count(self) -> int:
        return self.kills.total()

    def problems(self) -> dict[str, object]:
        found = {
            "lost": dict(self.lost),
            "repeated": dict(self.repeated),
            "stuck": dict(self.stuck),
            "lost jobs": self.lost_jobs,
            "dead letters that were not meant": self.odd_dead,
            "odd ends": self.odd_ends,
            "left over": self.left_over,
        }
        return {name: value for name, value in found.items() if value}


def report(figures: Figures) -> str:
    def by_name(counts: Counter[str]) -> str:
        return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"

    def spread(times_s: list[float]) -> str:
        if not times_s:
            return "none"
        return f"median {statistics.median(times_s):.2f} s, longest {max(times_s):.2f} s"

    rows = {
        "kills": f"{figures.kill_count} in {figures.rounds} rounds: {by_name(figures.kills)}",
        "signals": f"{figures.signals.total()}: {by_name(figures.signals)}",
        "accepted messages": figures.accepted,
        "lost": by_name(figures.lost),
        "with Once, twice": by_name(figures.repeated),
        "with Once, dropped since it was applied before": figures.dropped,
        "without Once, again": figures.again,
        f"stuck (over {LIMIT_S:g} s)": by_name(figures.stuck),
        "waits while everything ran": spread(figures.waits_s),
        "longest wait, with kills in between": f"{figures.longest_s:.1f} s",
        "until everything ran again": spread(figures.ups_s),
        "until processes without supervisor ended": spread(figures.orphans_s),
        "until the schedule ran again": spread(figures.ticks_s),
        "jobs of the schedule": f"{figures.jobs}, lost {figures.lost_jobs}",
        "dead letters": f"{figures.dead}, not meant {figures.odd_dead}",
        "odd ends": figures.odd_ends or "none",
        "left-over processes": figures.left_over or "none",
    }
    return "\n".join(f"| {name} | {value} |" for name, value in rows.items())
