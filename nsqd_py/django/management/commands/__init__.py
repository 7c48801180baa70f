"""The commands of `manage.py`, a module for each.

nsq_worker  runs the tasks of a backend
"""
