"""Checkpoints that any plan of the same model reads, and sessions resumed from them."""
