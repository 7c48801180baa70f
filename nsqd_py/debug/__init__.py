"""What a running daemon tells about itself under /debug.

    pace.py       long work of a greenlet, in slices
    stacks.py     where greenlets and threads are
    profile.py    which functions use the processor
    flame.py      the same as a picture                                pure
    census.py     which types use the memory
    collector.py  what the garbage collector did, and how long it took
    memory.py     unused memory, back to the system
    handlers.py   the paths
"""
