"""Sub-tasks on streams: decomposition, Algorithm 1 of TurboDL, and the schedules that it is compared with."""
