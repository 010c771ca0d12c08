"""Everything a run needs before the first step: store, rows, sizes, evaluation."""

from dataclasses import dataclass

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax import draws, memory, mesh, picks, recipe_checks, specs, step
from bert_jax.baselines import Baselines
from bert_jax.baselines import measure as measure_baselines
from bert_jax.corruption import KEPT, MASKED, RANDOMED, MaskSpec
from bert_jax.data import (
    batches,
    building,
    corpus,
    given,
    heldout,
    remote,
    rows,
    store,
    vocabularies,
)
from bert_jax.data.batches import Curriculum
from bert_jax.data.heldout import EvalSet
from bert_jax.data.store import Store
from bert_jax.data.vocabulary import Vocabulary
from bert_jax.encoder import EncoderSpec
from bert_jax.evaluate import PAIRS
from bert_jax.objectives import rule_of
from bert_jax.optim import OptimizerSpec
from bert_jax.rundir import Refusal
from bert_jax.step import StepSpec

SAMPLE = 1024  # rows of a phase on which masking is measured


@dataclass(frozen=True)
class HeldOut:
    """One set of held-out rows with its masks and baselines."""

    name: str
    rows: EvalSet
    masks: MaskSpec
    baselines: Baselines
    objectives: tuple[str, ...]  # scored on it


@dataclass(frozen=True)
class Setup:
    """What a run is made of."""

    store: Store
    curriculum: Curriculum
    encoder: EncoderSpec
    optimizer: OptimizerSpec
    steps: tuple[StepSpec, ...]  # one for each phase
    seed: int

    @property
    def total_steps(self) -> int:
        """Steps of all phases."""
        return self.curriculum.ends[-1]

    def flops_per_row(self) -> list[float]:
        """Operations of a training row in each phase."""
        return [self.encoder.train_flops(s.length, s.masks.slots) for s in self.steps]


def adopt_vocabulary(config: ConfigDict) -> None:
    """Sets the keys of the vocabulary to what it is, where it is there already.

    A file has the size it has, and a store was made with settings of its own.

    Raises:
      Refusal: there is no such store or file, or both are given.
    """
    kind, _, place = config.corpus.partition(":")
    v = config.vocabulary
    if kind != "store" and not v.path:
        return
    if kind == "store" and v.path:
        raise Refusal(
            f"the store {place} has its own vocabulary and {v.path} is another; leave "
            "--vocab out, or give the text as the corpus"
        )
    try:
        found = (
            store.open_store(remote.fetch(place)).vocabulary
            if kind == "store"
            else vocabularies.read(specs.vocabulary_spec(config))
        )
    except ValueError as error:
        raise Refusal(str(error)) from error
    v.size = len(found)
    if isinstance(found, Vocabulary):
        names = {value: name for name, value in specs.STRIP_ACCENTS.items()}
        v.kind, v.lowercase = "wordpiece", found.spec.lowercase
        v.strip_accents = names[found.spec.strip_accents]
    else:
        v.kind, v.model_type = "sentencepiece", found.model_type
        v.rule = found.normalization


def prepare_store(config: ConfigDict) -> Store:
    """Corpus -> vocabulary -> token store, from the cache where it is there.

    Where it came with rows, keys that say how those were built are set to that.

    Raises:
      Refusal: the corpus or the vocabulary will not do.
    """
    try:
        kind, _, place = config.corpus.partition(":")
        if kind == "store":
            made = store.open_store(remote.fetch(place))
        else:
            text = corpus.load(config.corpus)
            made = building.store_of(
                text, vocabularies.make(text, specs.vocabulary_spec(config))
            )
    except ValueError as error:
        raise Refusal(str(error)) from error
    layout = given.layout(made) if given.has_rows(made) else None
    recipe_checks.check_given(config, layout)
    if layout is not None:
        config.rows.plans = 1  # there are no others
        if config.masks.kind == "given":
            config.masks.max_predictions = layout.max_predictions_per_seq
    return made


def make(config: ConfigDict, tokens: Store, devices: int) -> Setup:
    """Plans the rows and sizes the steps of a checked configuration.

    Raises:
      Refusal: too few documents for pairs, or a device too small.
    """
    spec = specs.encoder_spec(config, len(tokens.vocabulary))
    phase_specs = [
        (specs.batch_spec(config, length), steps, size)
        for length, steps, size in config.phases
    ]
    try:
        # The held-out side first: it is planned soonest and refused soonest.
        heldout_spec = heldout.spec(config.eval.sequence_length, config.eval.seed)
        rows.load_plan(tokens, heldout_spec.rows, 0)
        curriculum = batches.curriculum(tokens, phase_specs, config.masks.final_rate)
        optimizer = specs.optimizer_spec(config)
        room = memory.available()
        steps = []
        for length, _, size in config.phases:
            masks = specs.mask_spec(config, length, tokens.vocabulary)
            on_device = size // devices
            micro = config.machine.micro_batch // devices or memory.micro_batch(
                spec, length, masks.slots, on_device, room
            )
            steps.append(
                StepSpec(
                    encoder=spec,
                    masks=masks,
                    optimizer=optimizer,
                    objectives=specs.objectives(config),
                    length=length,
                    seed=config.seed,
                    micro_batches=on_device // micro,
                )
            )
    except ValueError as error:
        raise Refusal(str(error)) from error
    return Setup(tokens, curriculum, spec, optimizer, tuple(steps), config.seed)


def held_out_sets(config: ConfigDict, setup: Setup) -> list[HeldOut]:
    """The fixed evaluation set, and the run's own format where it is another."""
    e = config.eval
    own_length = config.phases[-1][0]
    fixed = heldout.spec(e.sequence_length, e.seed)
    own = heldout.own_format(setup.curriculum.phases[-1].spec, e.seed)
    vocab = setup.store.vocabulary
    common = MaskSpec(
        vocab_size=len(vocab),
        mask_id=vocab.ids["[MASK]"],
        slots=picks.slots_for(e.sequence_length, 0.15, "exact", 0),
    )
    wanted = [("held-out", fixed, common)]
    own_masks = specs.mask_spec(config, own_length, vocab)
    # Of given rows, random pairs whose segments are both held out are too few to score.
    if own.rows.format != "given" and (own, own_masks) != (fixed, common):
        wanted.append(("held-out-own-format", own, own_masks))
    out = []
    for name, spec, masks in wanted:
        chosen = EvalSet(setup.store, spec, e.pairs)
        baselines = measure_baselines(setup.store, chosen, e.seed)
        # A head that learned another label says nothing about this one.
        usual = {"next_sentence": "nsp", "sentence_order": "sop", "none": None}
        label = usual[spec.rows.pair_label]
        names = tuple(
            n for n, _ in specs.objectives(config) if n not in PAIRS or n == label
        )
        out.append(HeldOut(name, chosen, masks, baselines, names))
    return out


def measure_masks(setup: Setup) -> list[dict[str, float]]:
    """Rates of each phase's corruption, measured on its first rows."""
    measured = []
    for phase, spec in zip(setup.curriculum.phases, setup.steps, strict=True):
        count = min(SAMPLE, phase.stream.cycle)
        batch = phase.batch(0, range(count))
        corrupt = jax.jit(step.corrupt, static_argnums=(1, 2, 3, 4, 5))
        rule = rule_of(name for name, _ in spec.objectives)
        _, targets = corrupt(
            batch, spec.masks, spec.length, spec.seed, draws.Stream.MASKS, rule
        )
        used, kinds = np.asarray(targets.weights_BK) > 0, np.asarray(targets.kinds_BK)
        chosen = int(used.sum())
        measured.append(
            {
                "rows": count,
                "selected": chosen,
                "selected_share": chosen / int((batch.pairs_BT > 0).sum()),
                "masked_share": float((kinds[used] == MASKED).mean()),
                "random_share": float((kinds[used] == RANDOMED).mean()),
                "kept_share": float((kinds[used] == KEPT).mean()),
                "surplus": int(targets.surplus_B.sum()),
            }
        )
    return measured


def device_count(config: ConfigDict) -> int:
    """Devices that split the rows of a batch.

    Raises:
      Refusal: machine.mesh does not fit the devices there are.
    """
    try:
        return mesh.row_devices(mesh.make(config.machine.mesh or None))
    except ValueError as error:
        raise Refusal(str(error)) from error
