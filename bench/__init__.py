"""Measurements of nsqd and nsqlookupd from outside, on their sockets: the figures in the README come from here.

    python -m bench                                     our nsqd and nsqlookupd alone
    python -m bench --peer-nsqd ./nsqd --rounds 5       side by side with another nsqd
    python -m bench --only lookup --peer-nsqlookupd ./nsqlookupd
    python -m bench.two_nsqds --load ./load             two nsqds behind one name beside one

A *scenario* (`scenarios.py`) pairs a *load* (`loads/`, one module each) with what it is held to. Each run
starts a fresh server on free ports and an empty data directory (`server.py`), and one process that makes the
load (`generator.py`): a load made inside this process would share its interpreter with the progress display.
With a peer, the two run in turn (`duel.py`), and what counts is the median of the ratios of neighbouring
runs: a machine that is slower for a minute is slower for both. `report.py` prints, `record.py` keeps every
raw figure as JSON, `plot.py` draws a recorded file. The nsqds and clients around an nsqlookupd are in `lookup/`.

The loads send buffers built beforehand and count answers by their bytes, so that one Python process can
saturate the server; each run records the CPU seconds of both processes, which shows whether it did.
"""
