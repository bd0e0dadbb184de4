"""``orrery read``: what it prints of the cluster that it has made."""

from orrery.commands.read_command import _print


def test_rates_of_links_are_printed_with_the_unit_that_their_file_gives(capsys):
    """Without one, 9.4 Gbit/s beside 24.5 GB/s would be taken for eight times as much."""
    classes = {"pcie": {"bandwidth_gbyte_per_s": 24.5}, "ethernet": {"bandwidth_gbit_per_s": 9.4, "latency_us": 15}}
    values = {"devices": 4, "machines": 2, "profile": "p100", "cluster_file": "mine.yaml", "read": [], "assumed": []}
    _print({**values, "link_classes": classes})
    assert "pcie 24.5 GB/s; ethernet 9.4 Gbit/s" in capsys.readouterr().out
