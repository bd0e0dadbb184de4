"""Show the tasks that an iteration waits for: the longest of the timeline, and the steps of its critical path."""

import orrery

graph = orrery.load_model("vgg11-cifar", batch=256)
cluster = orrery.load_cluster("p100-4x4:nodes=1")
plan = orrery.make_plan(graph, cluster, strategy="owt")
replay = orrery.replay(orrery.lower_plan(plan, graph, cluster))

tasks = replay.to_frame()
tasks["seconds"] = tasks["end_s"] - tasks["start_s"]
print(tasks.nlargest(5, "seconds")[["name", "kind", "seconds"]].to_string(index=False))
by_kind = orrery.program_path(replay).seconds_by("kind")
print({kind: f"{seconds / replay.iteration_s:.0%}" for kind, seconds in by_kind.items()})
orrery.figure(replay).write_html("timeline.html")
assert abs(sum(by_kind.values()) - replay.iteration_s) < 1e-9 * replay.iteration_s
