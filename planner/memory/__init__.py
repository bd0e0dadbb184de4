"""Memory of devices: buffers of a program, their lifetimes, the peak, and advice on what would fit."""
