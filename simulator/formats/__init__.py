"""Task graphs and timelines as files: JSON, Parquet, CSV and Chrome trace events."""
