"""A topic that is alive, as a stream and as a table: what its nsqds keep, by sequence number (`GET /topic/read`).

options   which topic, where, from where on        offsets   how far a query is, and how much comes next   pure
reader    what Spark asks, batch_reader too        task      what an executor reads
kept      the questions to an nsqd, over HTTP      places    which nsqds there are
topic     where reading begins and ends            patience  asks again while they are away
"""
