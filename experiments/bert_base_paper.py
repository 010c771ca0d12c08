"""BERT-base as the paper says it was trained (Devlin et al. 2018, appendix A.2).

    python launch/tpu_pod.py --exp bert_base_paper --corpus 'text:wiki/*.txt'

256 rows a step, 1M steps, about 40 passes over 3.3 billion words; length 128 for 90 %
of the steps, then 512; rate 1e-4. What the paper does not say (how often masks are
drawn, a cap of predictions, short rows) is as the public script does it, without a cap.
The keys in which ``bert_base_public`` differs are set there, one by one. Not run here.
"""

from ml_collections import ConfigDict

from bert_jax import config as configs


def get_config() -> ConfigDict:
    """The configuration."""
    return configs.default()
