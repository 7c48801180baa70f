"""A live topic, as a stream and as a table: what its nsqds keep, by sequence number (`GET /topic/read`).

options       which topic, on which nsqds, from where on     offsets  how far a query is, and how much comes next   pure
reader        the stream                                     batch_reader  the table, which needs less of PySpark
topic         which nsqds have the topic, and what they keep
kept          questions to an nsqd, over HTTP, asked again while it is away
task          what an executor reads
"""
