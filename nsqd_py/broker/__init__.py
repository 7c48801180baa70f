"""What exists: topics and channels, their metadata, how they are loaded at the start and kept in order afterwards."""
