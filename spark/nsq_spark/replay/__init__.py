"""Sends what an archive holds to nsqd again: what, where to, how fast, and so that it can be interrupted.

job          what is asked for: selection, destination, pacing, safety                                         pure
planning     what of it each task does                                                                         pure
running      the driver: starts the work on Spark, shows how far it is, ends it        progress, outcome: what it tells
counting     the jobs before it: where a limit is reached, what a dry run would show   limit, preview
task         the work of one task without the JVM: read, select, hand on               reading, selection, sinks
frame        the same with a predicate in SQL, or without duplicates: through a DataFrame    predicate, json_types
order        messages of many files in the order of their times, in bounded memory     spill
send         to nsqd, until it is acknowledged                                         pace, outlet, batches
checkpoint   what was acknowledged, on disk: the same job goes on there                marks, ledger

Executors import no gevent; only `frame` and `running` import pyspark.
"""
