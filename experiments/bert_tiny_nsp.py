"""BERT-tiny, MLM + NSP, on the text embedded in Python: everything on, in minutes.

    python launch/tpu_pod.py --exp bert_tiny_nsp

Two CPU cores, CPython 3.11, from nothing (corpus, vocabulary, plans, compiling and
evaluation included): 7m11s. At the last step, 1,000 pairs of 32 held-out documents:

    seed 0   mlm_loss 4.209 (unigram 6.308, gain 2.099 +- 0.022)
             nsp_accuracy 0.704 (majority 0.545, gain 0.159 +- 0.025; overlap 0.733)

What was learned on the way, all with two layers of 128 and 4,000 words:

* The length curriculum decides. At length 64 from the start, 6,000 steps of 32 rows
  stay near 5.4 (gain 0.83 to 1.00 over two seeds). With rows of 32 first, attention
  finds its positions after 1,200 to 1,800 steps; the loss passes 5.5 in the first
  phase and falls by more than a nat in the second.
* Without bias correction the early steps are large: a peak of 2e-3 after 150 steps of
  warmup stands still at the start; after 1,000 it does not.
* NSP wants distinct pairs and long rows: at 64 then 128 for 6,400 steps, 10 plans gave
  0.715 and 0.763 (two seeds), 40 plans 0.771, 20 plans at a rate of 1.5e-3 0.797. Words
  shared by the two segments give 0.73 alone, so it is mostly topic.
"""

from ml_collections import ConfigDict

from bert_jax import config as configs


def get_config() -> ConfigDict:
    """The configuration."""
    config = configs.default()
    configs.set_size(config, "tiny")
    config.vocabulary.size = 4000
    config.rows.plans = 40
    config.masks.kind = "dynamic"
    config.phases = ((32, 1500, 64), (128, 3500, 32))
    config.optimizer.learning_rate = 2e-3
    config.optimizer.warmup_steps = 1000
    config.eval.every = 2500
    config.eval.pairs = 4000
    config.checkpoint.every = 2500
    config.log.every = 20
    return config
