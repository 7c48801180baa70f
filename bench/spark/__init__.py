"""What the Spark pipeline is measured with: an archive, a sink, and a standalone cluster."""
