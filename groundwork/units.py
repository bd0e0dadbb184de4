"""Factors between the units of files, data sheets and reports and the SI units of the program."""

TERA, GIGA, KILO, MILLI, MICRO, NANO = 1e12, 1e9, 1e3, 1e-3, 1e-6, 1e-9
KIB, MIB, GIB = 2.0**10, 2.0**20, 2.0**30
BITS_PER_BYTE = 8
HOUR_S = 3600.0
