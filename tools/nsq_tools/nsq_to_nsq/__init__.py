"""nsq-to-nsq: publishes the messages of topics to other nsqds.

options    the settings
filters    choosing JSON messages and their fields                          pure
forwarder  one batch: filter, distribute, publish, finish; the tool         gevent
"""
