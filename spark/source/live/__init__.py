"""A stream of a topic that is alive: what its nsqds keep, by sequence number, through `GET /topic/read`.

options   which topic, where, from where on        offsets   how far a query is, and how much comes next   pure
reader    what Spark asks                          task      what an executor reads
kept      the questions to an nsqd, over HTTP      places    which nsqds there are
"""
