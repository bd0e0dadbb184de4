"""Which strategy trains AlexNet fastest on four GPUs, and does the additive model rank them as the simulation does?"""

import orrery

graph = orrery.load_model("alexnet", batch=128)
cluster = orrery.load_cluster("titanx-4")
comparison = orrery.compare(graph, cluster, ["data", "owt", "layerwise"])

frame = comparison.to_frame().set_index("name")
print(frame[["additive_s", "simulated_s", "speedup"]].round(4).to_string())
print(f"the fastest: {comparison.winner}")
orrery.figure(comparison, "ladder").write_html("ladder.html")
assert frame["simulated_s"].idxmin() == comparison.winner
