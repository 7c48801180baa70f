"""The connection of an NSQ client.

connection     one client: reads commands, sends answers and messages
client_stream  what lies below: negotiated layers, heartbeats, errors
commands       the handler of each command
error_charge   counts the errors of a client; clients with too many are served more slowly     pure
"""
