"""Pages of results: one HTML file each, which needs no other file and sends no request."""
