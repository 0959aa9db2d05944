"""The three sorts of system that are counted, traced, timed and compared: specs, torch modules, published models."""
