"""Printed values of five papers, beside the values that this project computes."""
