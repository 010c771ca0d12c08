"""The Batch contract: what the data side hands to the device side.

Shape letters used throughout the project: B rows of the batch, T tokens of a row,
P pairs packed into a row (1 where rows are not packed), K prediction slots of a row,
D model width, F inner width, H heads, V vocabulary, L layers.
"""

from typing import Any, NamedTuple

Array = Any  # numpy on the host, jax.Array on the device


class Batch(NamedTuple):
    """One batch of rows ``[CLS] A [SEP] B [SEP]``, uncorrupted.

    Attention, masking candidates and loss weights are three separate arrays, so that
    no meaning hangs on "the id is not 0".
    """

    tokens_BT: Array  # int32, token ids; the [PAD] id where pairs_BT is 0
    segments_BT: Array  # int32, 0 through the first [SEP] of a pair, 1 after it
    pairs_BT: Array  # int32, 1.. per packed pair, 0 = padding; attention stays inside
    positions_BT: Array  # int32, offset inside the pair; index of the position table
    maskable_BT: Array  # bool, candidates for masking: neither [CLS] nor [SEP] nor pad
    words_BT: Array  # int32, 1.. per word of a pair where maskable, else 0
    starts_BP: Array  # int32, where the [CLS] of each pair stands
    plans_BP: Array  # int32, plan the pair comes from ...
    rows_BP: Array  # int32, ... its row in that plan ...
    reads_BP: Array  # int32, ... and how often that row was read before
    picks_BP: Array  # int32, tokens to predict (exact selection), made by the host
    rate_BP: Array  # float32, share of tokens to predict (independent selection)
    label_BP: Array  # int32, 0 = actual next or in order, 1 = random or swapped
    weight_BP: Array  # float32, 1 for a pair with a label, else 0
    place_B: Array  # int32, place of the row in the global batch; addresses dropout
    # Masks that came with the rows: int32 positions and tokens in their place, and
    # bool slots in use, each [B, K]; None where the device draws them.
    given: Any = None

    def take(self, index: Any) -> "Batch":
        """Some of the rows, by an index along B."""

        def picked(field: Any) -> Any:
            if field is None or isinstance(field, tuple):
                return field and tuple(part[index] for part in field)
            return field[index]

        return Batch(*(picked(field) for field in self))
