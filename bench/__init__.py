"""Measurements of nsqd from outside, on its sockets: docs/performance.md and README.md quote their results.

    python -m bench --peer-nsqd ./nsqd              every row, our nsqd and another one alternately
    python -m bench --only topics --rounds 1        the rows whose section or name matches, ours alone
    python -m bench.compare                         ratios that changed between the newest two records

`rows.py` has one table for each question of docs/performance.md. A row is a load and the flags of both servers.
`measure.py` makes the loads: each run starts a fresh server (`server.py`) on free ports and an empty data path.
`load.py` is the generator of publishes and deliveries, a process of its own; `spark.py` is the same for Spark;
`client.py` is their connection. `record.py` keeps the results as JSON, `plot.py` draws. Three measurements stand alone:
`loop_steps.py`, how long clients keep the event loop busy at a time; `archives.py`, archives read by Spark and by us; and
`restoring.py`, how soon a lost nsqd serves again from its store, with `object_server.py` as the bucket.
"""
