"""How the running model mixes tokens, beside the declared kinds."""
