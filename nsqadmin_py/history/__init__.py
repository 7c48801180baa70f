"""Metrics of the last hour in small steps, and of the last day in minutes.

ring      the latest values of one metric                           pure
series    the rings of all topics, channels and nsqds               pure
document  all of them as bytes
file      saves and loads them, and small documents next to them
saved     a small document that is written soon after each change

A thread of the file's pool of one packs and writes bytes, one write after the other. It shares nothing with
others.
"""
