"""Networks in ONNX files: read as data, no code of theirs runs and no weights are needed."""
