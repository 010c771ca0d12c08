"""How many tokens a row must predict: host arithmetic, no jax."""

import functools
import math


def slots_for(length: int, rate: float, selection: str, cap: int) -> int:
    """Prediction slots a row of ``length`` needs.

    exact: the largest count of the public script's rule, which is the count of a full
    row. independent: mean + 5 standard deviations of a binomial over the row.
    """
    if selection == "exact":
        return pick_counts(length, rate, cap)[length]
    mean = rate * length
    slots = math.ceil(mean + 5 * math.sqrt(mean * (1 - rate)))
    return min(slots, length) if cap == 0 else min(slots, length, cap)


@functools.lru_cache(maxsize=64)
def pick_counts(length: int, rate: float, cap: int) -> list[int]:
    """Tokens to predict in a row of n tokens, for n = 0 .. length.

    The public script's ``min(cap, max(1, int(round(n * rate))))``, n counting [CLS] and
    both [SEP]. Made on the host in Python arithmetic, because float32 rounds some
    products to the other side of a half, and Python rounds halves to even (30 tokens
    give 4). ``cap`` 0 means none.
    """
    counts = [0] + [max(1, round(n * rate)) for n in range(1, length + 1)]
    return [min(count, cap) for count in counts] if cap else counts
