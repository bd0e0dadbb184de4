"""Headlines, sentences and columns of results, printed alike by the terminal and the pages."""
