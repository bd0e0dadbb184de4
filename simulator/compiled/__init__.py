"""The parts of the compiled engine: its state, event loop, activities, exclusive resources and fair sharing."""
