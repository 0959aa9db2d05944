"""The predicted account: seconds of a model that is not run, from operations measured once on the machine."""
