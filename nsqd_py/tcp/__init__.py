"""The connection of an NSQ client.

connection    one client: reads commands from its socket, sends answers and messages
commands      the handler of each command
error_charge  counts the errors of a client; clients with too many are served more slowly     pure
"""
