"""Layer arithmetic: one part of one layer, forward and backward, on one device."""
