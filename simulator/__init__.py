"""Task graphs, the engines that replay them, and what can be read off a timeline."""
