"""What nsqadmin reads in the /metrics of an nsqd."""

from __future__ import annotations

import pytest

from nsqadmin_py.web.node_queries import figures_of_metrics

LAG = b"nsqd_event_loop_lag_seconds_bucket"


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        (b"", (None, None, None)),
        (b'nsqd_log_bytes{topic="a"} 5.0\nnsqd_log_bytes{topic="b"} 7.0\n', (12.0, None, None)),
        (b"process_cpu_seconds_total 1.5\n", (None, None, 1.5)),
        (LAG + b'{le="0.1"} 98\n' + LAG + b'{le="0.5"} 99\n' + LAG + b'{le="+Inf"} 100\n', (None, 0.5, None)),
        (LAG + b'{le="0.1"} 1\n' + LAG + b'{le="+Inf"} 100\n', (None, None, None)),
        (b"process_cpu_seconds_total much\n" + LAG + b'{le="x"} y\n', (None, None, 0.0)),
    ],
)
def test_figures_of_metrics(text: bytes, figures: tuple[float | None, ...]) -> None:
    found = figures_of_metrics(text)
    assert (found["disk_bytes"], found["loop_lag_s"], found["cpu_s"]) == figures
