"""BERT-base, MLM + NSP: the recipe of the 2018 paper.

    python launch/tpu_pod.py --exp bert_base_nsp --corpus 'text:wiki/*.txt'

Every key is at its default, which is this recipe: 1M steps of 256 rows, 90 % at length
128 and 10 % at 512; peak rate 1e-4 after 10k steps, linear decay; 10 plans with static
masks, as the public script's dupe_factor. The paper trained it for four days on 16 TPU
chips; its own final numbers are a dev perplexity of 3.99 and MNLI-m 84.4.
"""

from ml_collections import ConfigDict

from bert_jax import config as configs


def get_config() -> ConfigDict:
    """The configuration."""
    return configs.default()
