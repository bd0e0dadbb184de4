"""Commands that answer questions of many plans: sizes of clusters, and what changes would bring."""
