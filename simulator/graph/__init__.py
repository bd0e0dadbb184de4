"""The task graph, the rules that it must satisfy, and the sharing of resources among its activities."""
