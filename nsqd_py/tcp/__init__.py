"""The connection of an NSQ client.

connection    one client: bytes become commands, answers and messages become bytes
commands      the handler of each command
error_charge  counts the errors of a client, which is served more slowly for them     pure
"""
