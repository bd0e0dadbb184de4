"""Replays of programs: task graphs under each execution model, timelines, memory, bounds, sensitivities."""
