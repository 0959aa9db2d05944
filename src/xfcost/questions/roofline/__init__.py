"""`xfcost roofline`: operations under the roofs of a machine."""
