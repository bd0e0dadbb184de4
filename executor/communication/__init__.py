"""Messages between ranks, and gradient synchronisation over replicas."""
