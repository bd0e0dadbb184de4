"""Data types that messages are compressed with, and what a strategy compresses."""
