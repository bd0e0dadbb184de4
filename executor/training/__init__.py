"""Training on one rank: its session, forward and backward pass, updates, stores of activations and gradients."""
