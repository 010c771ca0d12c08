"""From corpora to batches; nothing here imports jax."""
