"""The commands of a project's manage.py, a module for each.

nsq_worker  runs the tasks of a backend
"""
