"""Metrics of the last hour in small steps, and of the last day in minutes.

series       the latest values of all topics, channels and nsqds       pure
file         saves and loads them
"""
