"""BERT-base as the public code trains it when its flags are left alone.

    python launch/tpu_pod.py --exp bert_base_public --corpus 'sentences:text/*.txt'

Flag defaults of create_pretraining_data.py and run_pretraining.py of
google-research/bert. Each key below is a difference from ``bert_base_paper``. Not run
here.
"""

from ml_collections import ConfigDict

from experiments import bert_base_paper


def get_config() -> ConfigDict:
    """The configuration."""
    config = bert_base_paper.get_config()
    config.phases = ((128, 100_000, 32),)  # max_seq_length, num_train_steps, batch
    config.optimizer.learning_rate = 5e-5
    config.masks.max_predictions = 20  # a row of 128 has 19, so it never binds there
    return config
