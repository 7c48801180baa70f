"""nsq-to-nsq: messages go on to other nsqds, and are finished when those have them.

options    the settings
filters    which JSON messages pass, and which of their fields      pure
portion    some messages of a batch that share a fate
forwarder  what becomes of a batch: filter, share out, publish, try elsewhere, requeue
run        the tool
"""
