"""Programs of models as plain data: exported from PyTorch modules, or read from files."""
