"""`xfcost calibrate`: a device is measured for predictions."""
