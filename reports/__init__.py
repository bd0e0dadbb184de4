"""Results shown: tables for the terminal, figures, and pages of one HTML file each."""
