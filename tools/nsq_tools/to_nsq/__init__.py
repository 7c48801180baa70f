"""to-nsq: publishes standard input, one message a record.

options      the settings
input        standard input in chunks, without blocking the event loop
records      chunks become batches of records, which are split by the size limits of an nsqd     pure
destination  one nsqd: batches that await its answer, retries, giving up
progress     progress as text, and the progress line on a terminal
publisher    from the first byte of the input to the last acknowledgement; --rate
"""
