"""`xfcost stream`: what sub-layers add to the residual stream."""
