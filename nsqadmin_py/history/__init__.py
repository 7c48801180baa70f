"""Figures of the last hour in small steps, and of the last day in minutes.

rings   the latest values of one figure                                       pure
series  the rings of all topics, channels and nsqds                           pure
marks   actions of users and starts of nsqds, as marks in charts             pure
file    saves and loads them
"""
