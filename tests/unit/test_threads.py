"""Work in a thread: its errors belong to whoever waits, and are printed by nobody else."""

from __future__ import annotations

import pytest
from gevent.threadpool import ThreadPool

from nsqd_py.diskqueue.compaction import Unmovable
from nsqd_py.runtime.threads import in_thread


@pytest.mark.parametrize("error", [OSError("no such disk"), Unmovable("message 5 is missing"), KeyError("a bug")])
def test_an_error_is_raised_and_not_printed(error: Exception, capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        in_thread(ThreadPool(1), fail)
    assert raised.value is error
    assert capfd.readouterr() == ("", "")
