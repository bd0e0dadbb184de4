"""The device graph: devices, links with latencies, copy engines, and the routes between devices."""
