"""Finding messages in the log of a topic.

json_path   a small language for values in JSON             pure
filters     which bodies are wanted: text, regular expression, JSON path
log_search  reads the log of one nsqd, and keeps the wanted messages
rows        a message as the page gets it                   pure
"""
