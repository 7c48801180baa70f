from pathlib import Path
from typing import Any

import pytest

from bench import page
from bench.scenarios import SCENARIOS
from tests.unit.bench.records import entry, recorded


def texts(*contents: dict[str, Any]) -> dict[str, str]:
    return page.parts([(Path("record"), content) for content in contents])


def test_generated_text_replaces_what_was_between_its_markers_and_nothing_else() -> None:
    before = "By hand.\n<!-- bench: lose -->\nold\n<!-- end of bench -->\nBy hand too.\n"
    after = page.fill(before, {"lose": "new"})
    assert after == "By hand.\n<!-- bench: lose -->\n\nnew\n\n<!-- end of bench -->\nBy hand too.\n"
    assert page.fill(after, {"lose": "new"}) == after


def test_a_marker_that_nothing_is_generated_for_is_an_error() -> None:
    with pytest.raises(page.PageError, match="'loose'"):
        page.fill("<!-- bench: loose -->\n<!-- end of bench -->", {"lose": ""})


def test_a_table_has_a_row_for_each_place_and_a_column_for_each_server() -> None:
    content = recorded(
        entry("size", "1 MB", {"Redis everysec": [2.0]}, ours=500, place=1e6),
        entry("size", "16 B", {"Redis everysec": [0.5, 0.4, 0.6], "limit": [0.9]}, ours=20_000, place=16),
    )
    found = texts(content)["size"]
    assert "| bytes in a message | nsqd-py | Redis everysec | limit |" in found
    assert "| 16 B | 20 k | 40 k; 0.50 × (0.40–0.60) | 22.2 k; 0.90 × |" in found
    assert found.index("16 B") < found.index("1 MB")
    assert "| 1 MB | 500 | 500 | – |" in found
    assert "Commit abc1234, 2026-01-01, EPYC, 2 cores, medians of 1 to 3 alternating runs: `python -m bench`." in found
    assert "Other processes used 0.6 of the cores meanwhile." in found


def test_latencies_are_shown_as_percentiles() -> None:
    content = recorded(
        entry(
            "latency", "1,000", {"limit": [1.0]}, ours=3.0, unit="ms", place=1000, p50_ms=1, p99_ms=3, p999_ms=9,
            generator_late_p99_ms=0.25,
        )
    )  # fmt: skip
    assert "| 1,000 | 1 / 3 / 9 | 1 / 3 / 9; 1.00 ×" in texts(content)["latency"]


def test_a_start_is_shown_with_its_processor_time() -> None:
    content = recorded(entry("start-up", "10 MB", {"limit": [0.5]}, ours=0.8, unit="s", place=10))
    found = texts(content)["start-up"]
    assert "| 10 MB | 0.8 | 0.4; 0.50 × |" in found
    assert "| 10 MB | 0.50 | 0.50 |" in found


def test_a_figure_that_the_generator_held_back_is_marked() -> None:
    def found(generator: float, server: float, **details: float) -> str:
        """In a run of 2 s."""
        row = entry("batch", "1", {}, place=1, client_cpu_s=2 * generator, server_cpu_s=2 * server, **details)
        return texts(recorded(row))["batch"]

    assert "| 1 | 100 † |" in found(generator=0.98, server=0.5)
    assert "†" not in found(generator=0.98, server=0.98)
    assert "†" not in found(generator=0.6, server=0.5)
    assert "†" in found(generator=0.6, server=0.5, consumer_cores=0.95)


def test_a_latency_that_comes_from_a_late_generator_is_marked() -> None:
    def found(late_ms: float) -> str:
        row = entry("latency", "1,000", {}, unit="ms", place=1000, p50_ms=1, p99_ms=10, p999_ms=20,
                    generator_late_p99_ms=late_ms)  # fmt: skip
        return texts(recorded(row))["latency"]

    assert "| 1,000 | 1 / 10 / 20 † |" in found(6)
    assert "†" not in found(4)


def test_a_library_that_the_server_holds_back_is_marked() -> None:
    commands = {"commands": {"peer": "python -m bench.clients.consume gnsq"}, "setups": []}

    def found(client: float, server: float) -> str:
        row = entry("clients", "consume-beside-gnsq", {"peer": [2.0]}, client_cpu_s=2 * client, server_cpu_s=2 * server)
        return texts(recorded(row | commands))["clients"]

    assert "‡ nsqd used its processor fully" in found(client=0.5, server=0.95)
    assert "‡" not in found(client=0.95, server=0.5)


def test_a_row_of_our_programs_says_what_it_measures_beside_what_and_what_is_required() -> None:
    row = entry("clients", "consume-beside-gnsq", {"peer": [2.0, 3.0]}, ours=160_000)
    row |= {"at_least": 5, "above": 150_000, "setups": [], "versions": {"subject": "", "peer": "1.0.2"}}
    row |= {"commands": {"peer": "python -m bench.clients.consume gnsq"}}
    found = texts(recorded(row) | {"minutes": 1})["clients"]
    assert (
        "| `consume-beside-gnsq` | a handler that does nothing | 160 k msg/s | 66.7 k msg/s | 2.50 × (2.00–3.00) "
        "| 400 / 400 | **≥ 5 ×, ≥ 150 k msg/s** |"
    ) in found
    assert "The others: gnsq 1.0.2." in found


def test_what_is_required_and_not_reached_is_bold_and_named_first() -> None:
    commands = {"commands": {"peer": "nsqd"}, "setups": []}

    def required(**limits: float) -> dict[str, str]:
        row = entry("nsqd", "mpub", {"peer": [1.5, 1.7]}, ours=300)
        return texts(recorded(row | commands | limits))

    assert "| ≥ 1.6 × |" in required(at_least=1.6)["nsqd"]
    missed = required(at_least=1.7)
    assert "| **≥ 1.7 ×** |" in missed["nsqd"]
    assert missed["lose"].startswith("Required below, and not reached: `mpub` (300 msg/s).")
    assert "**≥ 301 msg/s**" in required(above=301)["nsqd"]
    assert "**< 300 msg/s**" in required(below=300)["nsqd"]
    assert "**" not in required(above=300, below=301)["nsqd"]


def test_every_row_of_our_programs_says_what_it_measures() -> None:
    assert [scenario.label for scenario in SCENARIOS if not scenario.text] == []


def test_the_run_with_most_rows_is_named_with_its_length() -> None:
    rows = [entry("size", name, {}, place=1) for name in ("16 B", "1 MB")]
    long = recorded(*rows) | {"minutes": 29.7}
    short = recorded(entry("batch", "1", {}, place=1), commit="other00", at="2026-02-01T00:00:00+00:00")
    found = texts(short, long)["newest"]
    assert "2 of 3 rows are from one run at commit abc1234" in found
    assert found.endswith("It took 30 minutes.")


def test_where_we_lose_is_a_list_of_rows_with_the_peers_that_are_better_the_worst_first() -> None:
    ratios = {"Go nsqd": [0.8, 0.7, 0.9], "limit": [0.1], "JetStream": [1.2], "Redis everysec": [0.5, 0.7, 1.1]}
    content = recorded(
        entry("size", "16 B", ratios),
        entry("batch", "10", {"Redis everysec": [0.5]}),  # one round says little
        entry("batch", "100", {"Redis everysec": [1.5]}),
    )
    assert texts(content)["lose"].splitlines()[-2:] == [
        "| Batch size: 10 | 100 msg/s | Redis everysec 200, 0.50 × |",
        "| Message size: 16 B | 100 msg/s | Redis everysec 143, 0.70 ×; Go nsqd (in memory) 125, **0.80 ×** |",
    ]
    assert texts(recorded(entry("size", "16 B", {"Go nsqd": [1.0]})))["lose"] == "Nowhere."


def test_our_program_in_another_setting_is_no_peer_to_lose_to() -> None:
    row = entry("clients", "consume-beside-gnsq", {"peer": [0.5, 0.5]})
    other, ours = ({"peer": f"python -m bench.clients.consume {name}"} for name in ("gnsq", "ours-gevent"))
    assert "gnsq 200, **0.50 ×**" in texts(recorded(row | {"commands": other}))["lose"]
    assert texts(recorded(row | {"commands": ours}))["lose"] == "Nowhere."


def test_a_row_comes_from_the_newest_full_record_that_has_it() -> None:
    newest = recorded(entry("size", "16 B", {}, ours=1, place=16), kind="quick")
    newer = recorded(entry("size", "16 B", {}, ours=2, place=16), at="2026-01-03T00:00:00+00:00")
    old = recorded(
        entry("size", "16 B", {}, ours=3, place=16), entry("size", "1 MB", {}, ours=4, place=1e6), commit="old0000"
    )
    found = texts(newest, newer, old)["size"]
    assert "| 16 B | 2 |" in found
    assert "| 1 MB | 4 |" in found
    assert "Commit abc1234, 2026-01-03" in found and "Commit old0000" in found


def test_the_page_has_a_marker_for_every_generated_part() -> None:
    generated = texts()
    marked = {match[2] for match in page.MARKED.finditer(page.PAGE.read_text())}
    assert marked == generated.keys()
