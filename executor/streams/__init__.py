"""The sub-tasks of a backward pass really run on streams: threads with shares of the cores, or CUDA streams."""
