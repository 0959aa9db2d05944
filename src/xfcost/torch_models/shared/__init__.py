"""Code that several modules share: leaves, norms, convolutions, attention, caches."""
