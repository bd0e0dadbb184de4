"""Where the ranks of a run meet: their environment, network and store, and the secret by which they know each other."""
