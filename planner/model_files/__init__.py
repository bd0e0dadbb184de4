"""Models that are files, or functions of a user's code."""
