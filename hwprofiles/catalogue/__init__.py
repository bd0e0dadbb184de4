"""The catalogue of clusters, cluster files, changes to clusters, and readers of what machines print."""
