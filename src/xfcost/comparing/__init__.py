"""Several sizes, systems or runs side by side: sweeps, crossovers, differences, measured series."""
