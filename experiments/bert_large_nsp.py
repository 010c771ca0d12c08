"""BERT-large, MLM + NSP: 24 layers of 1024, 336,226,108 parameters with 30,522 tokens.

    python launch/tpu_pod.py --exp bert_large_nsp --corpus 'text:wiki/*.txt'

The paper trained it for four days on 64 TPU chips; dev perplexity 3.23, MNLI-m 86.6
(Devlin et al. 2018, tables 1 and 6).
"""

from ml_collections import ConfigDict

from bert_jax import config as configs


def get_config() -> ConfigDict:
    """The configuration."""
    config = configs.default()
    configs.set_size(config, "large")
    return config
