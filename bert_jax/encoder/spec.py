"""Sizes of an encoder, and what follows from them by arithmetic."""

from dataclasses import dataclass, replace

# name -> (layers, width); heads are width / 64 and the inner width is 4 * width
# (Devlin et al. 2018; Turc et al. 2019 for tiny to medium).
SIZES: dict[str, tuple[int, int]] = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}

GELUS = ("tanh", "erf")
DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class EncoderSpec:
    """Everything that decides the encoder's parameters and their use."""

    vocab_size: int
    layers: int
    width: int
    heads: int
    inner: int
    max_positions: int = 512
    segment_types: int = 2
    gelu: str = "tanh"  # the 2018 code's form; "erf" is Hugging Face's and fairseq's
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = 0.02
    layer_norm_epsilon: float = 1e-12
    compute_dtype: str = "float32"
    causal: bool = False  # attend to the left alone (left-to-right LM)
    # Width of a generator as a share of this one's; 0 = there is none (ELECTRA).
    generator: float = 0.0

    def generator_spec(self) -> "EncoderSpec":
        """Sizes of the generator: as deep, a share as wide, on the same embeddings."""
        heads = max(1, round(self.heads * self.generator))
        width = heads * (self.width // self.heads)
        inner = max(1, round(self.inner * self.generator))
        return replace(self, width=width, heads=heads, inner=inner, generator=0.0)

    def parameters(self) -> dict[str, int]:
        """Parameters by part: embeddings, layers, pooler, heads, and a generator's."""
        D = self.width
        tables = self.vocab_size + self.max_positions + self.segment_types
        parts = {
            "embeddings": tables * D + 2 * D,
            "layers": self.layers * self._layer_parameters(),
            "pooler": D * D + D,
            "mlm": D * D + D + 2 * D + self.vocab_size,
            "nsp": 2 * D + 2,
        }
        if self.generator:
            small = self.generator_spec()
            G = small.width
            head = G * D + D + 2 * D + self.vocab_size
            layers = small.layers * small._layer_parameters()
            parts["generator"] = D * G + G + layers + head
            parts["rtd"] = D * D + D + D + 1
        return parts

    def _layer_parameters(self) -> int:
        D, F = self.width, self.inner
        return 4 * (D * D + D) + 2 * D + (D * F + F) + (F * D + D) + 2 * D

    def train_flops(self, length: int, slots: int) -> float:
        """Floating-point operations of forward and backward on one row.

        Matrix products only: 2 operations a multiply-add, backward twice forward; the
        vocabulary product on ``slots`` positions alone; a generator counts too.
        """
        D, F, T = self.width, self.inner, length
        per_token = 2 * (4 * D * D + 2 * D * F) + 2 * 2 * T * D
        heads = slots * 2 * (D * D + self.vocab_size * D) + 2 * (D * D + 2 * D)
        total = 3.0 * (T * self.layers * per_token + heads)
        if self.generator:
            total += self.generator_spec().train_flops(length, slots)
        return total

    def activation_bytes(self, length: int, slots: int) -> float:
        """Bytes one row keeps for the backward pass, an upper estimate.

        Per token and layer some 32 arrays of the width (with the inner ones) and six
        of attention scores; at the head three of [K, V]. Twice what the mathematics
        keeps: 64 rows of BERT-base at 128 took a CPU to 14.9 GiB.
        """
        per_token = self.layers * (32 * self.width + 6 * self.heads * length)
        return 4.0 * (length * per_token + 3 * slots * self.vocab_size)
