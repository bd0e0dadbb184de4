"""The oracle: ParaDL's closed forms of time, memory and limits, for every strategy and number of devices at once."""
