"""Questions of size: how many devices, how large a batch, how fast a network, which offer, and what training takes."""
