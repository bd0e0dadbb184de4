"""What can be read off a replayed timeline: use of resources, bounds, the critical path."""
