"""spark-replay: publish again what an archive holds, so that it can be interrupted and resumed.

command     the command, from its options to its exit status
options     the settings
arguments   the job and the Spark that the settings ask for
console     progress, questions and signals on the terminal
summary     the plan and the summary, as text, and the report, as JSON
figures     numbers, sizes and times, as text

job         the job: selection, destination, pace, safety                       pure
planning    parts of files for tasks                                            pure
driver      runs a plan on Spark, and adds up the results
progress    counts of running tasks
task        the work of one task: read, select, hand on to a sink that sends
dry_run     a sink that counts instead of sending, and what a dry run prints
errors      errors of a replay

reading     the messages of a part that match, and their times
positions   positions of messages, and messages with their positions
ordering    merges messages by time
pace        how many messages may be sent now                                   pure
checkpoint  what was acknowledged, on disk, in a ledger for each task: the same job resumes there

sql         the way through Spark SQL, for a predicate or without duplicates
predicate   the parser of predicates                                            pure
json_types  the types of JSON fields in a predicate                             pure
filter      predicates that Python evaluates

Executors import no gevent; only `driver` and `sql` import pyspark.
"""

from __future__ import annotations

# Bytes of messages in one MPUB. With 128 KiB, nsqd needs a third less processor time, and tasks half as much again.
BATCH_BYTES = 512 * 1024
