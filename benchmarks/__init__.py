"""Side-by-side measurements: each runs a named peer in the same minutes."""
