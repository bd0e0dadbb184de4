"""Task graphs, the engines that replay them, and analyses of the timelines."""
