"""What results say in words and columns; the terminal and the pages print the same."""
