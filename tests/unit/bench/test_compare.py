import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench import compare, record
from tests.unit.bench.records import entry, recorded


def test_a_row_that_changed_by_more_than_5_percent_is_named_with_its_peer() -> None:
    old = recorded(entry("size", "16 B", {"Redis": [2.0, 2.0, 2.1], "Go nsqd": [1.0]}))
    new = recorded(entry("size", "16 B", {"Redis": [1.8, 1.7, 1.9], "Go nsqd": [1.04]}))
    assert [str(change) for change in compare.changes(old, new)] == [
        "worse: -10%  size, 16 B, beside Redis: 2.00 (2.00–2.10) → 1.80 (1.70–1.90)"
    ]


def test_a_row_that_became_better_is_named_too_after_the_worse() -> None:
    old = recorded(entry("size", "16 B", {"Redis": [1.0, 1.0]}), entry("size", "1 MB", {"Redis": [1.0, 1.0]}))
    new = recorded(entry("size", "16 B", {"Redis": [1.2, 1.2]}), entry("size", "1 MB", {"Redis": [0.5, 0.5]}))
    assert [(change.kind, change.new.row, round(change.share, 2)) for change in compare.changes(old, new)] == [
        ("worse", "1 MB", -0.5), ("better", "16 B", 0.2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ([1.0, 1.1], [0.8, 0.9], "worse"),
        ([1.0, 1.1], [1.2, 1.3], "better"),
        ([0.8, 1.1, 1.3], [0.7, 0.9, 1.0], "uncertain"),  # the old spread covers the new median
        ([1.0, 1.1], [0.7, 0.8, 1.05], "uncertain"),  # the new spread covers the old median
        ([1.0], [0.5, 0.5], "uncertain"),  # one run has no spread
        ([1.0, 1.1], [0.5], "uncertain"),
    ],
)
def test_a_change_whose_spread_covers_it_is_uncertain(before: list[float], after: list[float], kind: str) -> None:
    old, new = (recorded(entry("size", "16 B", {"Redis": ratios})) for ratios in (before, after))
    assert [change.kind for change in compare.changes(old, new)] == [kind]


def test_uncertain_changes_come_last_and_are_counted() -> None:
    old = recorded(*(entry("size", row, {"Redis": [1.0, 1.1]}) for row in ("16 B", "1 KB", "1 MB")))
    after = {"16 B": [0.3, 1.0], "1 KB": [0.9, 0.95], "1 MB": [1.2, 1.3]}
    new = recorded(*(entry("size", row, {"Redis": ratios}) for row, ratios in after.items()))
    *_, worse, better, uncertain, last = compare.report(old, new)
    assert [line.partition(":")[0] for line in (worse, better, uncertain)] == ["worse", "better", "uncertain"]
    assert last == "3 changed by more than 5%: 1 worse, 1 better, 1 uncertain"


def test_a_record_of_a_busy_machine_is_named() -> None:
    busy, quiet = (recorded(entry("size", "16 B", {"Redis": [1.0, 1.1]})) for _ in range(2))
    for runs in quiet["results"][0]["runs"].values():
        for run in runs:
            run["others_cpu_s"] = 0.01
    assert [line for line in compare.report(busy, quiet) if "Other processes" in line] == [
        "Other processes used 0.6 cores during the old runs: its ratios vary more than they show."
    ]
    assert not any("Other processes" in line for line in compare.report(quiet, quiet))


def test_rows_of_one_record_only_are_not_compared() -> None:
    old, new = recorded(entry("size", "16 B", {"Redis": [1.0]})), recorded(entry("size", "1 KB", {"Redis": [3.0]}))
    assert compare.changes(old, new) == []


def test_the_newest_record_is_compared_with_the_last_one_of_its_kind_that_has_a_row_in_common() -> None:
    row, other = entry("size", "16 B", {"Redis": [1.0]}), entry("batch", "10", {"Redis": [1.0]})
    records = [
        (Path("newest"), recorded(row)), (Path("quick"), recorded(row, kind="quick")),
        (Path("other-rows"), recorded(other)), (Path("older"), recorded(row)), (Path("oldest"), recorded(row)),
    ]  # fmt: skip
    assert compare.newest_two(records) == (Path("older"), Path("newest"))
    assert compare.newest_two(records[1:]) == (Path("oldest"), Path("older"))
    assert compare.newest_two(records[1:4]) is None


@pytest.mark.parametrize(("after", "status"), [(0.96, 0), (0.94, 1), (1.2, 0)])
def test_the_command_ends_with_status_1_if_a_row_is_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: float, status: int
) -> None:
    def write(name: str, content: dict[str, Any]) -> None:
        (tmp_path / name).write_text(json.dumps(content))

    write("a.json", recorded(entry("size", "16 B", {"Redis": [1.0, 1.0]}), at="2026-01-01T00:00:00+00:00"))
    write("b.json", recorded(entry("size", "16 B", {"Redis": [after, after]}), at="2026-01-02T00:00:00+00:00"))
    write("another-measurement.json", {"queries": []})
    monkeypatch.setattr(record.read_all, "__defaults__", (tmp_path,))
    result = CliRunner().invoke(compare.main, [])
    assert result.exit_code == status
    assert "1 ratios in both" in result.output
