"""Plans: made from a request, priced, compared, analysed, written to files and read back."""
