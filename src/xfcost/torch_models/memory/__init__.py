"""Peak memory of tensors and of the process: predicted on `meta`, measured on a device."""
