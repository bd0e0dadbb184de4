"""What every package stands on: errors, checked input, whole files, units, progress and fields of requests."""
