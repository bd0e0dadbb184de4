"""Predict the cost of one GPU at half speed, for data parallelism and for OWT."""

import orrery

slow = orrery.Scenario(name="gpu0 at half speed", changes=("device.node0/gpu0.speed=0.5",))
found = orrery.whatif("alexnet", "titanx-4", batch=128, strategies=["data", "owt"], scenarios=[slow])

frame = found.to_frame()
print(frame[["scenario", "strategy", "iteration_s", "against_today"]].round(4).to_string(index=False))
orrery.figure(found).write_html("straggler.html")
assert (frame[frame["scenario"] == slow.name]["against_today"] < 1).all()
