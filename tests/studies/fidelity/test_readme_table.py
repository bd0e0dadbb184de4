"""Documents show what was recorded last."""

from fidelity_readme import TABLE, tables


def test_documents_show_the_recorded_errors():
    """Where this fails, ``python tests/studies/fidelity_readme.py`` writes the tables again."""
    for document, table in tables().items():
        assert TABLE.findall(document.read_text()) == [table], document.name
