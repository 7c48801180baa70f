"""nsq-to-nsq: publishes the messages of topics to other nsqds.

options      the settings
program      its name, what it does, and examples
json_filter  filtering JSON messages, and reducing them to some fields   pure
circles      nsqds that would get their own messages back             gevent
forwarder    one batch: filter, distribute, publish, finish; the tool    gevent
"""
