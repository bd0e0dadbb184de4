"""Parts that all commands share: options, output, progress, exit codes, tables of results."""
