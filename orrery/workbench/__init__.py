"""The workbench: a local web application in which one picks, changes, compares and keeps."""
