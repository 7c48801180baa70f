"""nsq-to-nsq: forwards messages to other nsqds, and finishes a message after its destination has stored it.

options    the settings
filters    choosing JSON messages and their fields                   pure
forwarder  one batch: filter, distribute, publish, try another destination, requeue
run        the tool
"""
