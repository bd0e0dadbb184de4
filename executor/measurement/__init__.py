"""What runs measure: tasks of all ranks on one clock, allocations, confidence."""
