"""The two engines that replay a task graph: a clear one on SimPy and a compiled one."""
