"""The connection of an NSQ client.

connection     one client: reads commands, sends answers and messages
client_stream  what lies below: negotiated layers, heartbeats, errors; clients that cause too many are served more slowly
commands       the handler of each command
"""
