"""Built-in models.  A new file in this folder that registers its models needs no entry elsewhere."""
