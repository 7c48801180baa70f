"""What is due at a time: schedules, and messages that are deferred for longer than nsqd allows.

occurrences  `Every` and `Cron`: the times of a schedule                                          pure
tokens       `Token` stands for the next occurrence; `TokenBook` decides which token runs         pure
scheduler    `Scheduler`: the thread that gets the tokens of an app, and publishes its jobs
jobs         the declared schedules, and the handler of their jobs
later        messages that wait for longer than `longest_defer_s`

Threads
Scheduler  its thread has all of it but `_stop_by_s`, which others set, `failure`, which it sets, and `_has_ended`, which it sets
    in its last step
"""
