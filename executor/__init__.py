"""Programs run for real by processes on devices."""
