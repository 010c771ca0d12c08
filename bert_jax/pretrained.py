"""``load``: a checkpoint of a run as a model on this machine, parameters only."""

import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import checkpoint, encoder, specs
from bert_jax.batch import Batch
from bert_jax.data import clean, vocabularies
from bert_jax.data.sentencepieces import SPACE
from bert_jax.data.vocabularies import AnyVocabulary
from bert_jax.encoder import EncoderSpec
from bert_jax.rundir import RunDirectory

MASK = "[MASK]"
BUCKET = 32  # lengths are padded to a multiple, so that few programs are compiled


class Filling(NamedTuple):
    """One guess for a [MASK]."""

    token: str
    probability: float
    text: str  # the input with this guess in place


class Pretrained:
    """Parameters, sizes and vocabulary of one checkpoint."""

    def __init__(
        self,
        params: Any,
        spec: EncoderSpec,
        vocab: AnyVocabulary,
        step: int,
        path: Path,
    ):
        self.params, self.spec, self.vocabulary = params, spec, vocab
        self.step, self.path = step, path

    def __repr__(self) -> str:
        s = self.spec
        return (
            f"Pretrained({str(self.path)!r}, step {self.step:,}: {s.layers} layers of "
            f"{s.width}, {sum(s.parameters().values()):,} parameters)"
        )

    @functools.cached_property
    def _mask_logits(self) -> Any:
        @jax.jit
        def logits(params: Any, batch: Batch, positions_BK: Any) -> Any:
            x_BTD = encoder.encode(params, batch, batch.tokens_BT, self.spec)
            return encoder.embedding_logits(params, x_BTD, positions_BK, self.spec)

        return logits

    def _ids(self, text: str) -> list[int]:
        """Ids of a text in which [MASK] stands for itself."""
        parts = self.vocabulary.encode(text.split(MASK))
        mask_id = self.vocabulary.ids[MASK]
        ids = list(parts[0])
        for part in parts[1:]:
            ids += [mask_id, *part]
        return ids

    def _row(self, ids: list[int]) -> Batch:
        """[CLS] ids [SEP] as a batch of one row, padded to a bucket."""
        names = self.vocabulary.ids
        tokens = [names["[CLS]"], *ids, names["[SEP]"]]
        length = min(-(-len(tokens) // BUCKET) * BUCKET, self.spec.max_positions)
        row = np.full((1, length), names["[PAD]"], np.int32)
        row[0, : len(tokens)] = tokens
        inside = (np.arange(length) < len(tokens))[None]
        zeros, one = np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32)
        return Batch(
            tokens_BT=row,
            segments_BT=np.zeros_like(row),
            pairs_BT=inside.astype(np.int32),
            positions_BT=np.where(inside, np.arange(length), 0).astype(np.int32),
            maskable_BT=inside,
            words_BT=np.zeros_like(row),
            starts_BP=zeros,
            plans_BP=zeros,
            rows_BP=zeros,
            reads_BP=zeros,
            picks_BP=zeros,
            rate_BP=zeros.astype(np.float32),
            label_BP=zeros,
            weight_BP=one,
            place_B=np.zeros(1, np.int32),
        )

    def fill_mask(self, text: str, top_k: int = 5) -> list[Any]:
        """The likeliest tokens for each [MASK] of a text.

        Args:
          text: with at least one ``[MASK]``.
          top_k: guesses wanted.

        Returns:
          A list of ``Filling``, best first; a list of such lists, one for each mask,
          where the text has several.

        Raises:
          ValueError: no [MASK] in the text, more tokens than positions, ``top_k`` below
            1, or the text is no string.
        """
        if not isinstance(text, str):
            raise ValueError(f"text must be one string, got {type(text).__name__}")
        if top_k < 1:
            raise ValueError(f"top_k={top_k} must be at least 1")
        text = clean.SURROGATE.sub("\ufffd", text)
        if MASK not in text:
            raise ValueError(f"no {MASK} in {text!r}; write it where a word is missing")
        ids = self._ids(text)
        if len(ids) + 2 > self.spec.max_positions:
            raise ValueError(
                f"{len(ids) + 2} tokens with [CLS] and [SEP] are more than the "
                f"{self.spec.max_positions} positions of this model; shorten the text"
            )
        batch = self._row(ids)
        masks = np.flatnonzero(batch.tokens_BT[0] == self.vocabulary.ids[MASK])
        logits = self._mask_logits(self.params, batch, jnp.asarray(masks[None]))
        probabilities = np.asarray(jax.nn.softmax(logits[0], axis=-1))
        filled = []
        for place, chances in enumerate(probabilities):
            best = np.argsort(-chances, kind="stable")[:top_k]
            filled.append([self._filling(text, place, int(n), chances) for n in best])
        return filled if len(filled) > 1 else filled[0]

    def _filling(self, text: str, place: int, token: int, chances: Any) -> Filling:
        word = self.vocabulary.tokens[token]
        parts = text.split(MASK)
        before = MASK.join(parts[: place + 1])
        after = MASK.join(parts[place + 1 :])
        if not self.vocabulary.word_starts[token]:
            before = before.rstrip()  # a piece that goes on with the word before it
        shown = word.removeprefix("##").lstrip(SPACE)
        return Filling(word, float(chances[token]), before + shown + after)


def load(run: str | Path, step: int | None = None) -> Pretrained:
    """Opens a checkpoint of a run directory on this machine's first device.

    Args:
      run: the run directory.
      step: which checkpoint; the latest by default.

    Raises:
      ValueError: no run or no such checkpoint there, or a damaged one.
    """
    place = RunDirectory(run)
    if place.path.exists() and not place.path.is_dir():
        raise ValueError(f"{run} is a file; give the run directory")
    config = place.config()
    if config is None:
        raise ValueError(f"{run} is not a run directory: it has no config.json")
    steps = checkpoint.saved_steps(place.checkpoints)
    if not steps or step not in (None, *steps):
        raise ValueError(
            f"{run} has no checkpoint{'' if step is None else f' of step {step}'}; "
            f"there are: {', '.join(map(str, steps)) or 'none yet'}"
        )
    chosen = steps[-1] if step is None else step
    vocab = vocabularies.open_directory(place.path / "tokenizer")
    spec = specs.encoder_spec(config, len(vocab))
    local = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    target = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=local),
        encoder.parameter_shapes(spec),
    )
    try:
        params = checkpoint.load_parts(place.checkpoints, chosen, {"params": target})
    except checkpoint.DAMAGED as error:
        others = ", ".join(str(n) for n in steps if n != chosen) or "none"
        raise ValueError(
            f"{place.checkpoints / str(chosen)} cannot be read: it is damaged, or not "
            f"of this config.json. Other checkpoints there: {others} (load(run, step))"
        ) from error
    return Pretrained(params["params"], spec, vocab, chosen, place.path)
