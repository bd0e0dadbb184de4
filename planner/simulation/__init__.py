"""A program replayed: its task graph under each execution model, timelines, memory, bounds, sensitivities."""
