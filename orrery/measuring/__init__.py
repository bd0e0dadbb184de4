"""Commands that turn measurements into files: probes of this machine, files of others, profiles, traces."""
