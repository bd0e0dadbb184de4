"""The engines that replay a task graph: a clear one on SimPy, which is the reference, and a compiled one."""
