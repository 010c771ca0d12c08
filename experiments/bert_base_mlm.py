"""BERT-base without NSP: the batches of bert_base_nsp, NSP weight 0.

    python launch/tpu_pod.py --exp bert_base_mlm --corpus 'text:wiki/*.txt'

Rows, masks, order and dropout are those of bert_base_nsp, step for step; only the
next-sentence loss is taken out. What differs between the two runs is NSP and nothing
else. (The paper's "no NSP" row, table 5: MNLI-m 83.9 against 84.4, QNLI 84.9 against
88.4.)
"""

from ml_collections import ConfigDict

from bert_jax import config as configs


def get_config() -> ConfigDict:
    """The configuration."""
    config = configs.default()
    config.objectives.nsp = 0.0
    return config
