"""bert_tiny_nsp with SentencePiece in place of WordPiece, nothing else changed.

    python launch/tpu_pod.py --exp bert_tiny_sentencepiece

Two CPU cores with other work on them, CPython 3.11, 12m13s; 4,000 unigram pieces, 0.2 %
[UNK]. At the last step, 4,000 pairs of 32 held-out documents (+- one standard error):

    mlm_loss 3.784 +- 0.047 (unigram 6.389, gain 2.605 +- 0.032)
    nsp_accuracy 0.647 +- 0.018 (majority 0.556, gain 0.091 +- 0.021; overlap 0.740)

Losses of two vocabularies are not comparable: a piece is another unit than a WordPiece.
"""

from ml_collections import ConfigDict

from experiments import bert_tiny_nsp


def get_config() -> ConfigDict:
    """The configuration."""
    config = bert_tiny_nsp.get_config()
    config.vocabulary.kind = "sentencepiece"
    config.vocabulary.model_type = "unigram"
    return config
