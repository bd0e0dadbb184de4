"""One rank at work: its session, forward and backward passes, stores of activations and gradients."""
