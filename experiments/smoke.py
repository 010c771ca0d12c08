"""Everything once, in under a minute on two CPU cores: a check, not a model.

python launch/tpu_pod.py --exp smoke
"""

from ml_collections import ConfigDict

from bert_jax import config as configs


def get_config() -> ConfigDict:
    """The configuration."""
    config = configs.default()
    configs.set_size(config, "tiny")
    config.model.width = 64
    config.model.heads = 2
    config.model.inner = 128
    config.vocabulary.size = 2000
    config.phases = ((32, 40, 16), (64, 10, 16))
    config.masks.kind = "dynamic"
    config.optimizer.learning_rate = 1e-3
    config.optimizer.warmup_steps = 5
    config.rows.plans = 2
    config.eval.every = 25
    config.eval.sequence_length = 64
    config.checkpoint.every = 25
    config.log.every = 5
    return config
