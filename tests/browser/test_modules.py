"""The pure modules of the page, called in the browser: figures as text, what is lost, what a seek does, courses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import Visits, ready
from tests.support.nsqadmin_cluster import AdminCluster

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")

FORMAT, LOSSES, SEEK, BODY = "lib/format.js", "views/lost_messages.js", "views/seek_effect.js", "views/message_body.js"
COURSE, COLUMNS, LOG, LETTERS = "parts/history.js", "views/columns.js", "views/log_figures.js", "views/dead_letter_list.js"

SEARCH, PUBLISH = "views/message_search.js", "views/publish.js"
WINDOW, MARKS = "parts/time_window.js", "views/annotated_charts.js"

HELD = "{depth: 2, in_flight: 1, deferred: 0, clients: 1}"
FILE = "{first_timestamp: 100e9, last_timestamp: 200e9, message_count: 100, live_count: 40, first_seq: 0, bytes: 5}"
COURSE_OF_3 = '{step_s: 2, metrics: ["depth"], quantiles: [], data: [[10, 12, 14], [1, 2, null]]}'

# Parts of a search on three nsqds.
FOUND = (
    "[{node: 'a', isOver: true, reachedNs: 1, searched: 10, left: 0, messages: [{timestamp: 9}, {timestamp: 1}]},"
    " {node: 'b', isOver: false, reachedNs: 3, searched: 90, left: 900,"
    " messages: [{timestamp: 7}, {timestamp: 5}, {timestamp: 3}]},"
    " {node: 'c', isOver: false, reachedNs: 0, searched: 0, left: null, messages: []}]"
)


def one_line(*durations: str) -> list[str]:
    """Durations as the page writes them: no line ends within one."""
    return [duration.replace(" ", "\u00a0") for duration in durations]


@pytest.fixture(scope="module")
def page(browser: Browser, running_cluster: AdminCluster) -> Iterator[Page]:
    with Visits(browser) as visits:
        yield ready(visits(running_cluster.admin(), "/lookup"))


@pytest.mark.parametrize(
    ("module", "call", "answer"),
    [
        (FORMAT, "count(1234567)", "1,234,567"),
        (FORMAT, "[999, 999.6, 12345, 1e6, 2.5e9].map(m.short)", ["999", "1k", "12.3k", "1M", "2.5G"]),
        (FORMAT, "[0, 0.001, 0.5, 1234].map(m.rate)", ["0/s", "<0.01/s", "0.5/s", "1.23k/s"]),
        (FORMAT, "[0, 41.9, 75].map(m.age)", one_line("1 s", "41 s", "1 min 15 s")),
        (FORMAT, "[0, 0.001, 0.05, 12, 1234.56, null].map(m.tenth)", ["0.0", "<0.1", "0.1", "12.0", "1,234.6", "–"]),
        (FORMAT, "[0, 1, 2.7e6, 1234e6, null].map(m.milliseconds)", ["0.00", "<0.01", "2.70", "1,234.00", "–"]),
        (FORMAT, "[0, 1023, 1024, 1572864].map(m.bytes)", ["0 B", "1,023 B", "1 KiB", "1.5 MiB"]),
        (FORMAT, "[5e8, 61e9, 7500e9, 90061e9].map(m.duration)", one_line("500 ms", "1 min 1 s", "2 h 5 min", "1 d 1 h")),
        (FORMAT, "[999, 1500, 41.9e6, 2e9].map(m.latency)", one_line("999 ns", "1.5 µs", "41.9 ms", "2 s")),
        (FORMAT, "[null, undefined, NaN].map(m.count)", ["–", "–", "–"]),
        # The same time in s and in ns; the browser's zone is UTC.
        (FORMAT, "[1795278174, 1795278174e9].map(m.clock)", ["16:22:54", "16:22:54"]),
        (FORMAT, r"plain('a\u0000\u202eb\n')", "a␀‹U+202E›b␊"),
        (LOSSES, f"ofEmptied({HELD})", ["3 messages: 2 waiting, 1 in flight"]),
        (LOSSES, "ofEmptied({depth: 1, in_flight: 0, deferred: 0})", ["1 message waiting"]),
        (LOSSES, "ofEmptied({depth: 0, in_flight: 0, deferred: 0})", []),
        (
            LOSSES,
            f"ofTopic({{...{HELD}, rows: [{{channel: 'a', ...{HELD}}}, {{node: 'n'}}]}}, null)",
            ["3 messages: 2 waiting, 1 in flight", "1 channel: a (2 waiting, 1 in flight)", "the connections of 1 consumer"],
        ),
        (
            LOSSES,
            f"ofTopic({{rows: []}}, {{nodes: [{{answer: {{bytes: 2048, files: [{FILE}]}}}}, {{error: 'x'}}]}})",
            ["the log of 100 messages (2 KiB) that channels could seek back to"],
        ),
        (SEEK, f"[-Infinity, 150e9, 175e9, 200e9, 201e9].map(t => m.keptFrom({{files: [{FILE}]}}, t))", [100, 50, 25, 0, 0]),
        (
            SEEK,
            f"effectOf([{{node: 'n', answer: {{files: [{FILE}]}}}}, {{node: 'go', error: 'cannot'}}],"
            f" [{{node: 'n', ...{HELD}}}], 'earliest')",
            {"again": 97, "skipped": 0, "unable": [{"node": "go", "error": "cannot"}]},
        ),
        (
            SEEK,
            f"effectOf([{{node: 'n', answer: {{files: [{FILE}]}}}}], [{{node: 'n', ...{HELD}}}], 'latest')",
            {"again": 0, "skipped": 3, "unable": []},
        ),
        (
            BODY,
            """indentJson('{"a":[1,{}],"n":12345678901234567890}')""",
            '{\n  "a": [\n    1,\n    {}\n  ],\n  "n": 12345678901234567890\n}',
        ),
        (BODY, "indentJson('{not json')", None),
        (BODY, r"visible('a\tb\u0007\n')", "a\tb␇\n"),
        (BODY, "hexDump(new Uint8Array([0, 65, 255]))", f"00000000  {'00 41 ff':48} .A."),
        (BODY, "formsOf({body_base64: 'AEE='}).forms.map(form => form.name)", ["hex"]),
        (BODY, "toBase64(m.fromBase64('AEH/'))", "AEH/"),
        (
            COLUMNS,
            "[[1, null], [0, null], [3, 125.9], [3, 0.2]].map(([depth, oldest_age_s]) => ({depth, oldest_age_s})).map(m.ageText)",
            ["unknown", "–", *one_line("2 min 5 s", "1 s")],
        ),
        (
            COLUMNS,
            "[[0, 0, 1], [5, null, 1], [5, null, 0], [5, 80, 1]]"
            ".map(([depth, drain_s, clients]) => m.drainText({depth, drain_s, clients}))",
            ["–", "not at this rate", "no consumer", *one_line("1 min 20 s")],
        ),
        # A step that nothing was told of is as the one before, unless the connection was lost in the meantime.
        (COURSE, f"extended({COURSE_OF_3}, {{depth: 7}}, 19, 60, true).data", [[10, 12, 14, 16, 18], [1, 2, 2, 2, 7]]),
        (COURSE, f"extended({COURSE_OF_3}, {{depth: 7}}, 19, 60, false).data", [[10, 12, 14, 16, 18], [1, 2, None, None, 7]]),
        (COURSE, f"extended({COURSE_OF_3}, {{depth: 7}}, 15, 60, true).data", [[10, 12, 14], [1, 2, 7]]),
        (COURSE, f"extended({COURSE_OF_3}, {{depth: 7}}, 16.5, 4, true).data", [[12, 14, 16], [2, 2, 7]]),
        (
            COURSE,
            "grouped([1, 2, 3], [[2, 4, null]], 2)",
            [{"time": 3, "cells": [{"mean": 4, "low": 4, "high": 4}]}, {"time": 1, "cells": [{"mean": 2, "low": 2, "high": 2}]}],
        ),
        (COURSE, "extremes([null, 3, 1, null])", {"low": 1, "high": 3, "last": 1}),
        (COURSE, f"within({COURSE_OF_3}, 11, 14).data", [[12, 14], [2, None]]),
        (COURSE, f"within({COURSE_OF_3}, 15, 20).data", [[], []]),
        (WINDOW, "windowOf({range: '6h', from: '100', until: '90'})", {"range": "6h", "from": 0, "until": 0}),
        (WINDOW, "windowOf({range: 'x', from: '100', until: '190'})", {"range": "10m", "from": 100, "until": 190}),
        (WINDOW, "[0, 5000, 9000].map(from => m.historyRange({range: '6h', from}, 10000))", ["6h", "24h", "1h"]),
        (WINDOW, "changed([1000, 2000], {factor: 0.5}, 90000)", [3600, 4100]),  # not before the last day
        (WINDOW, "changed([89000, 89600], {factor: 4}, 90000)", [87600, 90000]),  # nor after now
        (WINDOW, "changed([80000, 80010], {part: -0.5}, 90000)", [79990, 80010]),
        (
            "views/client_rates.js",
            "withRates(new Map([['a', {at: 10, counts: [5]}], ['b', {at: 10, counts: [9]}]]),"
            " [{id: 'a', n: 25}, {id: 'b', n: 1}, {id: 'c', n: 3}], 12, row => row.id, {rate: 'n'})"
            ".rows.map(row => row.rate)",
            [10, None, None],
        ),
        # 3 differs from none, and 4,350 from 3, in lines that share a scale.
        (MARKS, "textOf({action: 'pause', topic: 't', channel: 'c', user: 'bob'})", "c of t paused by bob"),
        (
            MARKS,
            "[{action: 'start', node: 'n'}, {action: 'tombstone', topic: 't', node: 'n'}].map(m.textOf)",
            ["nsqd n started", "t tombstoned on n"],
        ),
        (
            LOG,
            f"sumsOf([{{answer: {{bytes: 9, earliest_seq: 0, files: [{FILE}]}}}}, {{error: 'x'}}])",
            {"kept": 100, "needed": 40, "bytes": 9, "files": 1, "earliestNs": 100e9},
        ),
        (
            LOG,
            f"blocksOf([{FILE}], {{fromNs: 0, untilNs: 400e9}}, 0.01)"
            ".map(b => [b.x, b.width, b.needed].map(part => part.toFixed(3)))",
            [["0.250", "0.250", "0.400"]],
        ),
        (LETTERS, "originsOf([{topic: 'a'}, {topic: 'b'}, {topic: 'b'}])", ["b", "a"]),
        (LETTERS, "[m.usualTarget('a.dead', []), m.usualTarget('letters', []), m.usualTarget('x', ['o'])]", ["a", "", "o"]),
        (BODY, r"[{body: 'a\n{}'}, {body_base64: 'AEE='}].map(m.preview)", ["a␊{}", "00 41"]),
        # All that have the topic come first, not only the one that had the message.
        (
            PUBLISH,
            "[['b', 'c'], null].map(having => m.placesOf([{node: 'a', state: 'ok'}, {node: 'b', state: 'ok'},"
            " {node: 'c', state: 'failed'}, {node: 's', state: 'ok', standby: {}}, {node: 'g', state: 'gone'}], having)"
            ".map(place => place.label))",
            [["b", "c (does not answer)", "a (creates the topic there)"], ["a", "b", "c (does not answer)"]],
        ),
        # One order for all nsqds, the newest first, whichever way is searched.
        (SEARCH, f"[true, false].map(isBack => m.shownOf({FOUND}, 3, isBack).map(row => row.timestamp))", [[9, 7, 5], [5, 3, 1]]),
        # a has nothing more; b was searched back to 3; what c has is not known. Three that are newer than 3 are known.
        (
            SEARCH,
            f"[3, 4, 5].map(wanted => m.unfinished({FOUND}, wanted, true).map(part => part.node).join())",
            ["c", "c", "c,b"],
        ),
        (
            SEARCH,
            f"[{FOUND}, {FOUND}.slice(0, 2)].map(m.progressOf)",
            [{"searched": 100, "of": None}, {"searched": 100, "of": 1000}],
        ),
        (
            SEARCH,
            "withPage(m.begun('n'), {answer: {messages: [{seq: 7}], prev_seq: 7, next_seq: 9,"
            " searched_count: 2, first_timestamp: 70, last_timestamp: 80, is_start: false, is_end: false}},"
            " true, {earliest_seq: 2})",
            {
                "node": "n",
                "messages": [{"seq": 7, "node": "n"}],
                "cursor": 7,
                "reachedNs": 70,
                "searched": 2,
                "left": 5,
                "isOver": False,
                "error": "",
                "can": True,
            },
        ),
        # The lines of a grid of times are those of a clock.
        (
            "parts/plot.js",
            "timeSteps(1).filter(n => n >= 0.2 && n <= 3600)",
            [0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600],
        ),
        # The beginning of a label was outside of the chart: "min 20 s" for "1 min 20 s".
        (
            "parts/plot.js",
            "[['5 s'], ['1 min 20 s', '40 s']].map(labels => { const u = document.createElement("
            "'canvas').getContext('2d'); u.font = '11px sans-serif'; const widths = labels.map(label => u.measureText("
            "label).width); return m.axisWidth(u, '11px sans-serif', labels) >= Math.max(...widths) + 10; })",
            [True, True],
        ),
    ],
)
def test_what_it_answers(page: Page, module: str, call: str, answer: Any) -> None:
    """`call` is of a function of the module, or an expression with the module as `m`."""
    expression = call if call.startswith("[") else f"m.{call}"
    assert page.evaluate(f"import('/static/{module}').then(m => ({expression}))") == answer
