"""Settings: declared once; flags, config files, --help, completion and reference
pages come from that."""
