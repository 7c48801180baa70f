"""nsqd itself: its settings, and the objects that it is made of.

daemon   builds all objects of an nsqd, and passes to each what it uses; no room imports it
docking  what nsqd and its optional features are to each other
parts    the tables of optional features: standbys, the lease, backups, imports and checks
options  nsqd's settings
"""
