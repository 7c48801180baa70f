"""docs/security.md says what the code does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nsqadmin_py.web import answers, server
from nsqd_py.api import handlers
from nsqd_py.api.routes import ROUTES as NSQD_ROUTES
from nsqd_py.auth import servers
from nsqd_py.cluster import answer_budget, stats_reader, upstream
from nsqd_py.lookup import peer
from nsqd_py.net import loop_iteration
from nsqd_py.net.http import answers as http_answers
from nsqd_py.net.http import client, debug, guard, heads
from nsqd_py.net.http.router import Access
from nsqd_py.options import NSQD
from nsqd_py.protocol import parser
from nsqd_py.runtime import documents, logs
from nsqd_py.settings.groups import LimitOptions
from nsqd_py.settings.program import Program
from nsqd_py.tcp import client_stream
from nsqlookupd_py.http import ROUTES as LOOKUPD_ROUTES
from nsqlookupd_py.options import NSQLOOKUPD

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/security.md").read_text()
LINES = PAGE.splitlines()
KIB, MIB = 1024, 1024 * 1024


def access_rows() -> dict[str, list[str]]:
    """The cells of the table of access rules, by kind of access."""
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in LINES if line.startswith("| ")]
    return {row[0].strip("| "): row for row in cells if row[0].strip("| ") in {access.value for access in Access}}


@pytest.mark.parametrize(("column", "routes"), [(1, NSQD_ROUTES), (2, LOOKUPD_ROUTES)], ids=["nsqd", "nsqlookupd"])
def test_each_path_is_in_the_row_of_its_access(column: int, routes: tuple[object, ...]) -> None:
    rows_by_access = access_rows()
    assert rows_by_access.keys() == {access.value for access in Access}
    for route in routes:
        path = route.path  # type: ignore[attr-defined]
        access = route.access.value  # type: ignore[attr-defined]
        word = "/debug/" if path.startswith("/debug/") else path
        assert f"{word}`" in rows_by_access[access][column], (path, access)


def test_limits_that_are_settings() -> None:
    names = {setting.name for program in (NSQD, NSQLOOKUPD) for setting in program.settings}
    for flag in [word for line in LINES for word in line.split("`") if word.startswith("--max-")]:
        assert flag.removeprefix("--").partition("=")[0] in names, flag
    for setting in LimitOptions.settings.values():
        assert f"`--{setting.name}`" in PAGE


@pytest.mark.parametrize(
    ("program", "names"),
    [
        (NSQD, ("max-topics", "max-channels-per-topic")),
        (NSQLOOKUPD, ("max-topics-and-channels", "max-registrations-per-nsqd", "max-registrations")),
    ],
    ids=["nsqd", "nsqlookupd"],
)
def test_defaults_of_limits(program: Program[Any], names: tuple[str, ...]) -> None:
    defaults = {setting.name: setting.default for setting in program.settings}
    for name in names:
        (row,) = [line for line in LINES if f"`--{name}` |" in line]
        assert row.split(" | ")[1].startswith(f"{defaults[name]:,}"), row


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (heads.MAX_HEAD_BYTES // MIB, "head of a request | 1 MiB"),
        (parser.MAX_LINE_LENGTH // KIB, "line of a TCP command | 16 KiB"),
        (answers.MOST_BYTES // MIB, "body of a request to nsqadmin | 16 MiB"),
        (http_answers.MOST_UNREAD_BYTES // MIB, "lists of nsqlookupd) | 32 MiB"),
        (http_answers.MOST_UNREAD_OF_ADDRESS // MIB, "8 MiB for one address"),
        (http_answers.MOST_RUNNING, "made at a time | 2;"),
        (int(http_answers.WAIT_S), "wait for up to 10 s"),
        (parser.MAX_JSON_BYTES // KIB, "of `AUTH` | 64 KiB"),
        (logs.CLIENT_BURST, "clients cause | 20 of each kind"),
        (logs.MAX_CLIENT_CHARACTERS, "counts those left out; 500 characters"),
        (f"{client_stream.ERRORS_AT_ONCE:,}", "connection) | 10,000 at once"),
        (client_stream.ERRORS_PER_S, "at once and 1000 a second"),
        (round(loop_iteration.SLOW_PART * 100), "have 5 % of the event loop"),
        (guard.MOST_WAITING_PER_ADDRESS, "4 waiting for each address"),
        (handlers.MOST_LOOKUPDS, "nsqlookupd_tcp_addresses` | 100"),
        (int(debug.FREEING_INTERVAL_S), "once in 10 s"),
        (logs.MAX_MESSAGE_CHARACTERS, "4096 characters"),
        (int(server.SOCKET_TIMEOUT_S), "progress 60 s"),
        (int(server.HEAD_S), "head of a request 120 s"),
        (int(server.BODY_S), "body 60 s"),
        (client.MAX_STATS_BYTES // MIB, "32 MiB and 1,000,000 JSON values"),
        (f"{documents.MAX_VALUES:,}", "1,000,000 JSON values"),
        (f"{stats_reader.MOST_TOPICS:,}", "100,000 topics"),
        (stats_reader.MOST_ROW_BYTES // MIB, "2 MiB for one topic"),
        (stats_reader.MOST_WHOLE_BYTES // KIB, "form than nsqd's, 256 KiB"),
        (answer_budget.SHARED_BYTES // MIB, "together | 32 MiB in answers"),
        (answer_budget.LARGE_BYTES // MIB, "in answers of up to 8 MiB"),
        (answer_budget.FREE_BYTES // KIB, "answers of up to 256 KiB do not count"),
        (f"{upstream.MOST_PRODUCERS:,}", "10,000 nsqds in an answer"),
        (peer.MAX_ANSWER_BYTES // MIB, "1 MiB, 10,000 channels"),
        (f"{peer.MAX_CHANNELS:,}", "10,000 channels of a topic"),
        (servers.MAX_ANSWER_BYTES // MIB, "auth server | 1 MiB"),
        (client.MAX_ANSWER_BYTES // MIB, "nsqlookupd | 16 MiB"),
    ],
)
def test_limits_that_are_fixed(value: object, words: str) -> None:
    assert words in PAGE
    assert str(value) in words
