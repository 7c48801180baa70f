"""Settings are declared once, as typed fields. Flags, config files, texts and completion follow from the declaration.

declaration   a setting, a class of options
types         the kinds of settings that declarations use
kinds         what a kind is: how a value is read, shown and joined; values that differ by topic
values        reads values from flags and config files
program       a program: its settings, and how it reads them; settings that several programs have
command_line  flags in Go's forms, --help and completion, by click
flags         the config file and the environment
durations     durations and times that users write
regex         regular expressions that users write
tools         settings that several tools share
completion    names of topics and channels, for a shell that completes them
"""
