"""Any queues that Go's nsqd may leave: each channel gets what Go's would have given it, and back."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd_py.fsck.go_export import export
from nsqd_py.go_import.take_over import take_over
from tests.support.examples import examples
from tests.support.go_directory import GoDirectory, GoMessage, go_messages, kept_queue
from tests.unit.fakes import FakeLog

POOL = go_messages([b"%d" % number for number in range(24)])
CHANNELS = ("a", "b", "c")
# What a queue may hold: any messages in any order, some of them twice, the later one tried more often.
QUEUES = st.lists(
    st.builds(GoMessage.tried, st.sampled_from(POOL), st.integers(min_value=0, max_value=2)), max_size=14
)


@settings(max_examples=examples(40))
@given(
    st.fixed_dictionaries(dict.fromkeys(CHANNELS, QUEUES)),
    st.lists(st.sampled_from(POOL), max_size=14),
    st.integers(min_value=0, max_value=5),
    st.integers(min_value=200, max_value=2000),
)
def test_each_channel_gets_its_messages(
    queues: dict[str, list[GoMessage]], own: list[GoMessage], cut: int, max_file_bytes: int
) -> None:
    log = FakeLog()
    with tempfile.TemporaryDirectory() as folder:
        go = GoDirectory(Path(folder) / "data")
        go.name_topics({"t": CHANNELS})
        for name, messages in queues.items():
            go.queue(f"t:{name}", messages[:cut], messages[cut:])
        go.queue("t", own)
        take_over(go.path, max_file_bytes, log, 0.0, lambda: None)
        for name, messages in queues.items():
            if any(queues.values()) or own:
                assert kept_queue(go.path, "t", name) == messages + own
        if any(queues.values()) or own:
            export(go.path, Path(folder) / "back", 0, max_file_bytes, 100)
            back = GoDirectory(Path(folder) / "back")
            for name in CHANNELS:
                kept = kept_queue(go.path, "t", name)
                assert (back.read(f"t:{name}") if back.meta(f"t:{name}").exists() else []) == kept
