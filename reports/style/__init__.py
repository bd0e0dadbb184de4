"""Style of all pages: colours, units, compact columns, lists of devices."""
