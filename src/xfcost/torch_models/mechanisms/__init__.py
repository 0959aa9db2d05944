"""The torch modules of `xfcost.mechanisms`."""
