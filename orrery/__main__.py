"""Entry point of ``python -m orrery``: the command line without its script on the path."""

from orrery.entry import main

main()
