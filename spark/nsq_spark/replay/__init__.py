"""spark-replay: publish again what an archive holds, so that it can be interrupted and resumed.

command     the command from its options to its exit status    options, arguments: what the user asks for
console     progress, questions and signals on the terminal    summary: what it prints; report: the same in JSON
job         the job: selection, destination, pace, safety                                                   pure
planning    what each task does                                                                             pure
driver      runs a plan on Spark, and adds up what came of it  progress: counts of running tasks
task        the work of one task: read, select, hand on to a sink that sends     reading, positions, ordering, pace
dry_run     a sink that counts instead of sending, and what a dry run prints
sql         the way through Spark SQL, for a predicate or without duplicates     predicate, json_types
filter      the same in Python, for predicates of constants
checkpoint  what was acknowledged, on disk: the same job resumes there           ledger

Executors import no gevent; only `driver` and `sql` import pyspark.
"""

from __future__ import annotations

# Bytes of messages in one MPUB. With 128 KiB, nsqd needs a third less processor time, and tasks half as much again.
BATCH_BYTES = 512 * 1024
