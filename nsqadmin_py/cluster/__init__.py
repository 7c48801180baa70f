"""What is known of the cluster: `model` (pure) learns what `poller` hears, `views` (pure) are what the page gets."""
