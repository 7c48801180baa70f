"""What nsqd does with its nsqlookupds: it tells them what it has, and asks them for the channels of a new topic."""
