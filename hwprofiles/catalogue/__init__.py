"""The catalogue of clusters, cluster files, and changes to clusters."""
