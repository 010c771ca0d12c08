"""bert_tiny_nsp with SentencePiece in place of WordPiece, nothing else changed.

python launch/tpu_pod.py --exp bert_tiny_sentencepiece
"""

from ml_collections import ConfigDict

from experiments import bert_tiny_nsp


def get_config() -> ConfigDict:
    """The configuration."""
    config = bert_tiny_nsp.get_config()
    config.vocabulary.kind = "sentencepiece"
    config.vocabulary.model_type = "unigram"
    return config
