"""Watchdogs beside ranks that torchrun has started, and how they agree on who failed."""
