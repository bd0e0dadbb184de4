"""Training with sharded parameters: the iteration of a network of equal blocks, made of the planner's prices."""
