"""The terminal tools: each is a process between NSQ and a shell, a file or another server.

clients   consumers made from the settings                                      gevent
messages  messages in columns, and as JSON lines                                pure
hosts     choosing the host for the next message; status lines                  pure

One folder a tool. Its `options` declare its settings; docs/tools and the shell completions are made from them.
to_nsq      publishes standard input
tail        shows messages
cat         shows the messages in files
stat        shows statistics of topics and channels
to_file     archives messages
to_http     sends messages to HTTP servers
nsq_to_nsq  forwards messages to other nsqds
worker      runs the handlers of an app
"""
