"""What a producer decides, without sockets and clocks; the gevent one and the blocking one share it.

A `publish.Publish` waits (`waiting`), or is in the `window` of one `outlet`, or is over. The `dispatcher` moves it
from one to the next, as answers come (`verdict`) and connections go.
"""
