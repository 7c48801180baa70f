"""spark-replay: publish again what an archive holds, so that it can be interrupted and resumed.

command     the command, from its options to its exit status
options     the settings
checks      what the settings must fulfil
job         the job: selection, destination, pace, safety                       pure
outcome     the outcome, over all tasks and runs
output      what users see: the question, progress, the plan, the summary, how to resume

driver      runs the jobs of Spark: sends messages, or counts them in a dry run
messages    the messages of a job as a table of Spark: selected, and in their order
task        the work of one task: sends rows, in the time that the pace allows
pace        when the messages of a task may leave                                     pure
checkpoint  the directory of a job: the same job resumes there
stored      how far the logs of topics go, which says how much is stored twice

Executors import `task`, and no gevent.

Threads
Replay  a thread runs an action of Spark, whose result a Future hands over; after a stop its result is dropped
_Joined  the thread of Spark's accumulators adds; the driver copies the sum in one step
"""
