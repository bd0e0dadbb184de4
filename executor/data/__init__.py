"""Training data: generated, arrays in files, or folders of images; every rank reads its region of a mini-batch."""
