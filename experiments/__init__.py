"""Recipes: one file an experiment, a docstring with what to expect and a config."""
