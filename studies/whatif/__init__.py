"""What-if by hand: a plan on a changed cluster."""
