"""How many rows fit at once: a formula, and the memory there is."""

from pathlib import Path

import jax

from bert_jax.encoder import EncoderSpec

STATE_BYTES = 16  # per parameter: weight, gradient, two moments, float32


def available() -> int:
    """Bytes of one device, or of the container for a CPU."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    total = _meminfo() * 1024
    for limit in (
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ):
        try:
            total = min(total, int(Path(limit).read_text()))
        except (OSError, ValueError):
            continue  # no such file, or "max"
    return total


def _meminfo() -> int:
    """Kibibytes of the machine; 8 GiB where it does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 8 * 2**20


def micro_batch(
    spec: EncoderSpec,
    length: int,
    slots: int,
    rows: int,
    memory: int,
    most: int = 0,
) -> int:
    """Rows at once on one device: the largest divisor of ``rows`` that fits.

    Half of what the state leaves free may go to activations. ``most`` caps it.

    Raises:
      ValueError: the state alone fills the memory.
    """
    state = STATE_BYTES * sum(spec.parameters().values())
    budget = (memory - state) / 2
    each = spec.activation_bytes(length, slots)
    if budget < each:
        raise ValueError(
            f"one row of {length} tokens needs {each / 2**30:.2f} GiB and the state "
            f"{state / 2**30:.2f} GiB; the device has {memory / 2**30:.2f} GiB. Use a "
            "smaller model or shorter phases"
        )
    fitting = min(int(budget // each), most or rows)
    return max(n for n in range(1, rows + 1) if rows % n == 0 and n <= fitting)
