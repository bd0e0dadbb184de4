"""The README shows what was recorded last."""

from fidelity_readme import README, TABLE, readme_table


def test_the_readme_shows_the_recorded_errors():
    """Where this fails, ``python tests/studies/fidelity_readme.py`` writes the table again."""
    assert TABLE.findall(README.read_text()) == [readme_table()]
