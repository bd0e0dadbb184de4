"""The closed forms of the 8-bit approximations paper, and the sweep of compression settings on clusters."""
