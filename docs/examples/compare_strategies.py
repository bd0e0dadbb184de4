"""Compare strategies for AlexNet on four GPUs: the fastest one, and whether the additive model ranks them alike."""

import orrery

graph = orrery.load_model("alexnet", batch=128)
cluster = orrery.load_cluster("titanx-4")
comparison = orrery.compare(graph, cluster, ["data", "owt", "layerwise"])

frame = comparison.to_frame().set_index("name")
print(frame[["additive_s", "simulated_s", "speedup"]].round(4).to_string())
print(f"the fastest: {comparison.winner}")
orrery.figure(comparison, "ladder").write_html("ladder.html")
assert frame["simulated_s"].idxmin() == comparison.winner
