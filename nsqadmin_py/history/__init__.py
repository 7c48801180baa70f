"""What was: figures of the last hour in small steps, and of the last day in minutes. `rings` and `book` are pure."""
