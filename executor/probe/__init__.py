"""Probes: the machine at hand measured as a cluster file and a compute profile.

For use inside an open process group, between training iterations, there are ``LayerProbe``, ``parts_of``,
``over_ranks``, ``measure_device``, ``measure_links`` and ``write_profile``; ``probe`` starts processes of its own.
"""
