"""What several modules share: leaves, norms, convolutions, attention, caches."""
