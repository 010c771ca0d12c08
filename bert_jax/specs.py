"""Config -> specs. Below this door nothing receives a configuration."""

from typing import Any

from ml_collections import ConfigDict

from bert_jax import picks
from bert_jax.corruption import MaskSpec
from bert_jax.data import rows, vocabularies
from bert_jax.data.batches import BatchSpec
from bert_jax.data.vocabularies import VocabularySpec
from bert_jax.data.vocabulary import TokenizerSpec
from bert_jax.encoder import EncoderSpec
from bert_jax.objectives import OBJECTIVES
from bert_jax.optim import OptimizerSpec

STRIP_ACCENTS = {"auto": None, "yes": True, "no": False}


def vocabulary_spec(config: ConfigDict) -> VocabularySpec:
    """Vocabulary and tokenizer settings of a configuration."""
    v = config.vocabulary
    return VocabularySpec(
        kind=v.kind,
        path=v.path,
        size=v.size,
        tokenizer=TokenizerSpec(v.lowercase, STRIP_ACCENTS[v.strip_accents]),
        model_type=v.model_type,
        rule=v.rule,
    )


def encoder_spec(config: ConfigDict, vocab_size: int) -> EncoderSpec:
    """Sizes of a configuration."""
    m = config.model
    return EncoderSpec(
        vocab_size=vocab_size,
        layers=m.layers,
        width=m.width,
        heads=m.heads,
        inner=m.inner,
        max_positions=m.max_positions,
        gelu=m.gelu,
        dropout=m.dropout,
        attention_dropout=m.attention_dropout,
        initializer_range=m.initializer_range,
        compute_dtype=m.compute_dtype,
        causal=m.causal,
        generator=m.generator if config.objectives.rtd > 0 else 0.0,
    )


def objectives(config: ConfigDict) -> tuple[tuple[str, float], ...]:
    """Objectives with a weight, in the order of the table."""
    weights = config.objectives.to_dict()
    return tuple((name, weights[name]) for name in OBJECTIVES if weights[name] > 0)


def optimizer_spec(config: ConfigDict) -> OptimizerSpec:
    """Optimizer of a configuration; its total is that of the phases."""
    total = sum(steps for _, steps, _ in config.phases)
    return OptimizerSpec(total_steps=total, **config.optimizer.to_dict())


def mask_spec(config: ConfigDict, length: int, vocab: Any) -> MaskSpec:
    """Masking rule of a configuration at one length."""
    m = config.masks
    rate = max(m.rate, m.final_rate)
    slots = picks.slots_for(length, rate, m.selection, m.max_predictions)
    if config.rows.pack > 1 and m.selection == "exact":
        # Each row that is packed rounds its own count, by half a token at most.
        slots = min(length, slots + config.rows.pack)
    if config.objectives.ltr > 0:
        slots = length - 1
    return MaskSpec(
        vocab_size=len(vocab),
        mask_id=vocab.ids["[MASK]"],
        slots=slots,
        mask_share=m.mask_share,
        random_share=m.random_share,
        selection=m.selection,
        unit=m.unit,
        pool=m.pool,
        reserved=vocabularies.reserved_ids(vocab) if m.pool == "ordinary" else (),
        span_p=m.span_p,
        span_max=m.span_max,
    )


def batch_spec(config: ConfigDict, length: int) -> BatchSpec:
    """Rows of a configuration at one length."""
    r, m = config.rows, config.masks
    row_spec = rows.RowSpec(
        length=length,
        seed=config.seed,
        short_seq_prob=r.short_seq_prob,
        random_next_prob=r.random_next_prob,
        format=r.format,
        pair_label=r.pair_label,
    )
    return BatchSpec(
        rows=row_spec,
        plans=r.plans,
        shuffle=r.shuffle,
        mask_rate=m.rate,
        max_predictions=m.max_predictions,
        mask_copies=m.copies if m.kind == "static" else 0,
        pack=r.pack,
        given=m.kind == "given",
    )
