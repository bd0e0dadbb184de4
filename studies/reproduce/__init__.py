"""What five papers print, beside what this project computes."""
