"""Foundations of every rank: devices, boxes, options, random numbers by position, parameters, optimizers."""
