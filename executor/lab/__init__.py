"""A cluster on one machine: network namespaces as hosts and switches, shaped cables between them."""
