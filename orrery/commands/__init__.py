"""The commands, one file each or a few that belong together."""
