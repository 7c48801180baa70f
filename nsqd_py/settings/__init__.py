"""Settings are declared once, as typed fields. Flags, config files, texts and completion follow from the declaration.

declaration  a setting, a class of options
program      a program: its settings, command line, start
types        kinds of values: how they are read and shown
groups       settings that several programs have
flags        the command line, the config file and the environment
docs         --help, reference and manual pages, example config files
completion   scripts for bash, zsh and fish
durations    durations and times that users write
regex        regular expressions that users write
"""
