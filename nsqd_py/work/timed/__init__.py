"""What is due at a time: schedules, and messages that are deferred for longer than nsqd allows.

occurrences  `Every` and `Cron`: the times of a schedule                                          pure
tokens       `Token` stands for the next occurrence; `TokenBook` decides which token runs         pure
scheduler    `Scheduler`: the thread that gets the tokens of an app, and publishes its jobs
later        messages that wait for longer than `longest_defer_s`

Threads
Scheduler  its thread has all of it but `_stop_by_s`, which others set before they wake it, and `failure`, which it sets
    before its last step, `_ended`
"""
