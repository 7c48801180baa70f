"""Measurements of our programs from outside, on their sockets: the figures in docs/performance.md come from here.

    python -m bench                                     everything, beside the peers that are on PATH
    python -m bench --quick --peers ./bin               five minutes, with peers from a directory
    python -m bench --only lookup --no-peers            one section, without peers
    python -m bench.compare                             what changed between the newest two records
    python -m bench.page                                docs/performance.md from the records
    python -m bench.filmstrip                           nsqadmin's first screen while it loads, as pictures
    python -m bench.two_nsqds --load ./load             two nsqds behind one name beside one

A *scenario* (`scenario.py`) is a row of the result: a *load* (`loads/`, one module each) and what it is held to.
`scenarios.py` has those of our programs, `sweeps.py` those beside other message queues, whose servers and protocols
are in `peers/`; `programs.py` finds the programs. Each run starts a fresh server on free ports and an empty data
directory (`server.py`), and one process that makes the load (`generator.py`): a load made inside this process would
share its interpreter. For the sweeps that process starts the publishers of `publishing.py` with a `workload.py`;
`consumer.py` finishes messages. With peers, all run in turn (`duel.py`), and what counts is the median of the ratios of
neighbouring runs: a machine that is slower for a minute is slower for all. `plan.py` gives each row a round before any
has two. `report.py` prints, `record.py` keeps the figures as JSON after each row, `rows.py` reads them for `tables.py`,
`page.py` puts those into docs/performance.md, `plot.py` draws, and `compare.py` compares two records. The nsqds and
clients around an nsqlookupd are in `lookup/`.

The loads send buffers built beforehand and count answers by their bytes, so that one Python process can
saturate the server; each run records the CPU seconds of both processes, which shows whether it did.
"""
