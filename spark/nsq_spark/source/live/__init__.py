"""A live topic, as a stream and as a table: what its nsqds keep, by sequence number (`GET /topic/read`).

options       which topic, on which nsqds, from where on
offsets       how far a query is, and how much it reads next   pure
nsqds         the nsqds that have the topic, and what they keep
batch_reader  the table, and what tasks read; it needs less of PySpark than the stream
reader        the stream
"""
