"""The command spark-replay: from what was typed to what is shown.

run        starts Spark, and the work
work       one after the other: list, plan, ask, send or look
request    the job that is asked for; spark_wanted: and the Spark                                   pure
stopping   Ctrl-C and SIGTERM
question   what will be done, and whether it may begin       plan_text: what it says                pure
bar        how far it is, on a terminal                      progress_text: what it says            pure
summary    what came of it, in lines                                                                pure
dry_run    what would be sent: topics, a histogram, the first messages                              pure
report     the same for programs, in JSON
figures    sizes, times and numbers for people                                                      pure
"""
