"""The device graph: devices, links, their latencies, copy engines and the routes between devices."""
