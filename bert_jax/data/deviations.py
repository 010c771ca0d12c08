"""What a run does otherwise than the public script of 2018, in words."""

from typing import Any

# Of rows and of masks that are made here, and of training.
ROWS = (
    "A random second segment always comes from another document; the script falls "
    "back to the same document after ten draws and keeps the label random.",
    "A random second segment comes from the same side of the held-out split.",
    "Draws are addressed by (plan, document, sentence) instead of taken in turn from "
    "one generator; the distribution is the script's, its sequence is not.",
)
MASKS = (
    "Masks are drawn when a row is read, from the address of the row, and a slot for "
    "a prediction holds one; the script writes them into the files.",
)
TRAINING = (
    "Each loss is one ratio over the whole batch; on a pod the script takes a ratio on "
    "each core (with 1e-5 added to the weight) and the mean of those.",
    "The gradient of the whole batch is clipped; on a pod the script clips that of "
    "each core and takes the mean afterwards.",
)

# Settings that are the 2018 script's, and what another value is called.
SWITCHES = (
    ("masks.kind", "static", "masks are {}"),
    ("masks.copies", 1, "a row has {} static masks, taken in turn"),
    ("masks.selection", "exact", "selection is {}: the count of a row varies"),
    ("masks.rate", 0.15, "{} of the tokens are predicted"),
    ("masks.mask_share", 0.8, "{} of the predicted tokens become [MASK]"),
    ("masks.random_share", 0.1, "{} of the predicted tokens become any token"),
    ("masks.unit", "token", "chosen are whole {}s"),
    ("masks.pool", "vocabulary", "random tokens are drawn from {} tokens"),
    ("masks.final_rate", 0.0, "the share of predicted tokens goes to {} in a line"),
    ("rows.format", "segment_pair", "rows are {}"),
    ("rows.pair_label", "next_sentence", "label of a pair: {}"),
    ("rows.pack", 1, "up to {} rows lie in one row of the batch"),
    ("rows.shuffle", "all_plans", "rows are shuffled {}"),
    ("rows.short_seq_prob", 0.1, "{} of the documents have a short target"),
    ("rows.random_next_prob", 0.5, "a second segment is random with {}"),
    ("objectives.nsp", 1.0, "next-sentence loss has weight {}"),
    ("objectives.mlm", 1.0, "masked-language-model loss has weight {}"),
    ("objectives.sop", 0.0, "sentence-order loss has weight {}"),
    ("objectives.ltr", 0.0, "left-to-right loss has weight {}"),
    ("objectives.generator", 0.0, "loss of a generator has weight {}"),
    ("objectives.rtd", 0.0, "replaced-token detection has weight {}"),
    ("model.causal", False, "attention to the left alone: {}"),
    ("model.gelu", "tanh", "gelu is {}"),
    ("model.dropout", 0.1, "dropout is {}"),
    ("model.attention_dropout", 0.1, "dropout of attention is {}"),
    ("model.compute_dtype", "float32", "activations are {}"),
    ("optimizer.schedule", "linear_2018", "the schedule is {}"),
    ("optimizer.bias_correction", False, "bias correction is {}"),
    ("optimizer.beta1", 0.9, "beta1 is {}"),
    ("optimizer.beta2", 0.999, "beta2 is {}"),
    ("optimizer.epsilon", 1e-6, "epsilon of the optimizer is {}"),
    ("optimizer.weight_decay", 0.01, "weight decay is {}"),
    ("optimizer.clip_norm", 1.0, "the gradient is clipped at {}"),
)


def deviations(settings: dict[str, Any]) -> list[str]:
    """What a run does otherwise than the 2018 script, always and by its settings."""
    switched = [
        f"{path}: {text.format(settings[path])} (script: {usual})."
        for path, usual, text in SWITCHES
        if settings[path] != usual
    ]
    rows = () if settings["rows.format"] == "given" else ROWS
    masks = () if settings["masks.kind"] == "given" else MASKS
    return [*rows, *masks, *TRAINING, *switched]
