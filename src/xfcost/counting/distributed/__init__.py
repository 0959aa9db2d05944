"""Training on several devices: bytes of each, what recomputation adds, FLOPs and days."""
