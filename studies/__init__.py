"""Questions asked of many plans."""
