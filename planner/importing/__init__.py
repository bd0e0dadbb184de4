"""Importer of models: a program, read operation by operation into a computation graph."""
