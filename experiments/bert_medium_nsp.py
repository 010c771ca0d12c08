"""BERT-medium, MLM + NSP: 8 layers of 512, 41,668,412 parameters with 30,522 tokens.

    python launch/tpu_pod.py --exp bert_medium_nsp --corpus 'text:wiki/*.txt'

A size of Turc et al. 2019, under the 2018 recipe of bert_base_nsp with nothing else
changed: 1M steps of 256 rows, 90 % at length 128 and 10 % at 512.
"""

from ml_collections import ConfigDict

from bert_jax import config as configs


def get_config() -> ConfigDict:
    """The configuration."""
    config = configs.default()
    configs.set_size(config, "medium")
    return config
