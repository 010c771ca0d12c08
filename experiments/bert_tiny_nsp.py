"""BERT-tiny, MLM + NSP."""

from ml_collections import ConfigDict

from bert_jax import config as configs


def get_config() -> ConfigDict:
    """The configuration."""
    config = configs.default()
    configs.set_size(config, "tiny")
    config.vocabulary.size = 4000
    config.phases = ((64, 5600, 32), (128, 800, 32))
    config.rows.plans = 40
    config.masks.kind = "dynamic"
    config.optimizer.learning_rate = 1e-3
    config.optimizer.warmup_steps = 500
    config.eval.every = 1600
    config.checkpoint.every = 1600
    config.log.every = 20
    return config
