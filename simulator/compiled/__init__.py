"""The compiled engine in parts: its state, the event loop, activities, exclusive resources, fair sharing."""
