from bench.percentiles import Schedule, percentile, summary_ms

MS = 1_000_000


def test_a_percentile_is_the_smallest_value_that_enough_values_do_not_exceed() -> None:
    values = list(range(1, 101))
    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 0.991, 1.0)] == [1, 50, 99, 100, 100]
    assert percentile([7], 0.999) == 7


def test_a_summary_is_in_milliseconds() -> None:
    assert summary_ms([3 * MS, MS, 2 * MS]) == {"p50_ms": 2, "p90_ms": 3, "p99_ms": 3, "p999_ms": 3, "max_ms": 3}


def test_requests_are_due_at_even_instants_and_belong_to_the_lanes_in_turn() -> None:
    whole = Schedule(start_ns=5 * MS, rate_per_s=1000)
    assert [whole.due(at_ms * MS) for at_ms in (4, 5, 6, 9)] == [0, 1, 2, 5]
    lanes = [Schedule(5 * MS, 1000, first=number, step=2) for number in range(2)]
    assert [lane.intended_ns(1) // MS for lane in lanes] == [7, 8]
    assert [[lane.due(at_ms * MS) for at_ms in (5, 6, 7, 8)] for lane in lanes] == [[1, 1, 2, 2], [0, 1, 1, 2]]


def test_a_stall_counts_for_every_request_that_should_have_left_meanwhile() -> None:
    """A server answers within 1 ms, but stalls once for 100 ms; a request should leave each millisecond."""
    schedule = Schedule(0, rate_per_s=1000)
    stall_from, stall_to = 500, 600

    def answered_ms(sent_ms: int) -> int:
        return stall_to + 1 if stall_from <= sent_ms < stall_to else sent_ms + 1

    latencies = [answered_ms(number) * MS - schedule.intended_ns(number) for number in range(1000)]
    assert summary_ms(latencies)["p99_ms"] == 91  # 10 of 1,000 requests waited longer

    closed_loop, now_ms = [], 0
    while now_ms < 1000:
        closed_loop.append((answered_ms(now_ms) - now_ms) * MS)
        now_ms = answered_ms(now_ms)
    assert summary_ms(closed_loop)["p99_ms"] == 1  # which hides the stall
