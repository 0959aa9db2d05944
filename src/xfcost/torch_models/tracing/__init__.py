"""The traced account: the graph that torch's tracer makes of a model, counted by fvcore."""
