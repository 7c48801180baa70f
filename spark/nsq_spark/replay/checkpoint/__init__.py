"""What a job of spark-replay keeps on disk, so that it can be interrupted and resumed.

directory  the directory of a job: the same job resumes there
ledger     what was acknowledged in each try of a task
refused    the messages that nsqd refuses: found again in the archive, saved in a file, and published as dead letters
"""
