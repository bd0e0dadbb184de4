"""What drawings are made from: networks, clusters, timelines."""
