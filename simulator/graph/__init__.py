"""The task graph, the rules that it keeps, and how its activities share resources."""
