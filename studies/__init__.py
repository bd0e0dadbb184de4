"""Studies that make and compare many plans."""
