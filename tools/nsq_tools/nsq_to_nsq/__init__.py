"""nsq-to-nsq: publishes the messages of topics to other nsqds.

options    the settings
forwarder  one batch: filter, distribute, publish, finish; the tool         gevent
"""
