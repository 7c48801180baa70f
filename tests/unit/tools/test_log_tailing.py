"""Reading logs over HTTP: answers that are no logs."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from nsq_tools.tail.log_tailing import LogReader
from nsqd_py.cluster.admin_client import Answer
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES
from nsqd_py.settings.program import ToolError
from tests.unit.fakes import FakeLog


@pytest.mark.parametrize("answer", [b"x", b"x" * FILE_HEADER_BYTES, b"\0" * 1000])
@pytest.mark.parametrize("last", [0, 3])
def test_an_answer_that_is_no_log_is_an_error_of_the_tool(answer: bytes, last: int) -> None:
    client: Any = SimpleNamespace(answer=lambda: nullcontext(Answer()), get_bytes=lambda *_: answer)
    reader = LogReader(client, "127.0.0.1:4151", "orders", FakeLog())
    with pytest.raises(ToolError, match="127.0.0.1:4151: the answer to /topic/read is not a log"):
        reader.begin(0, last)
        list(reader.messages())
