"""The connection of an NSQ client.

connection  one client: bytes become commands, answers and messages become bytes
commands    the handler of each command
"""
