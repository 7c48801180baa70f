"""Settings are declared once, as typed fields. Flags, config files, texts and completion follow from the declaration.

declaration   a setting, a class of options
types         kinds of values: how they are read and shown
program       a program: its settings, and how it reads them; settings that several programs have
command_line  flags in Go's forms, --help and completion, by click
flags         the config file and the environment
durations     durations and times that users write
regex         regular expressions that users write
tools         settings that several tools share
completion    names of topics and channels, for a shell that completes them
"""
