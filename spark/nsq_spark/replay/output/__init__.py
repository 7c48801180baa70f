"""What spark-replay shows to its user.

terminal  its question, its signals, and a line of progress
summary   the plan, the summary and the dry run, as text, and the report, as JSON
resume    the commands that go on, as text

Threads
Stopping.asked  a signal handler sets it in the main thread, where nothing waits for it
"""
