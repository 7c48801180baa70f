"""to-nsq: publishes files or standard input, one message a record.

options      the settings
program      its name, what it does, and examples
records      chunks of the input become batches of records                                       pure
pace         the speed of --rate, and how far ahead it lets the tool read                         pure
destination  one nsqd: batches that await its answer, retries, giving up                         gevent
publisher    from the first byte of the input to the last acknowledgement; progress
"""
