"""Training with every data type of messages, and what it does to the accuracy on samples that were not trained on."""
