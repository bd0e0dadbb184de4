"""What every rank has: devices, boxes, options, random numbers by position, parameters, optimizers."""
