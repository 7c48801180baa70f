"""A cluster under mixed load and trouble for as long as one likes: `python -m tests.soak --minutes 30`.

ledger      which messages were acknowledged, and which each channel received
cluster     the processes, their disks and clocks
workers     threads that repeat a step until they are stopped
nsqd        nsqd with a disk and a clock that the soak controls
clients     well-behaved producers and consumers
nuisances   clients that hang, read slowly, send rubbish, come and go
troubles    what happens to the processes: kills, slow and full disks, clocks that step
sampling    memory, descriptors, threads, loop lag and disk use over time
slopes      Theil-Sen slopes, and how much growth is allowed
run         one soak from start to verdict
"""
