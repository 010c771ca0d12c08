"""The prepare report: what a corpus became, as people like to read it."""

from bert_jax.data import corpus as corpora
from bert_jax.data import given, learning
from bert_jax.data.corpus import Corpus
from bert_jax.data.faults import Faults
from bert_jax.data.store import Store
from bert_jax.data.vocabularies import AnyVocabulary

BAR = "█"
WIDTH = 40
SAMPLE = 8 << 20  # bytes of text a vocabulary is measured on
SENTENCES = 50_000
LONE = 0.5  # share of one-sentence documents from which a warning is due (case P09)


def histogram(drawn: dict[str, list[int]]) -> list[str]:
    """Bars of text: how many values lie from each edge to the next."""
    edges, counts = drawn["edges"], drawn["counts"]
    most = max(*counts, 1)
    lines = []
    for low, high, count in zip(edges, [*edges[1:], 0], counts, strict=True):
        name = f"{low:,}-{high - 1:,}" if high else f"{low:,}+"
        bar = BAR * round(WIDTH * count / most)
        lines.append(f"  {name:>13}  {count:>12,}  {bar}")
    return lines


def facts(store: Store) -> list[tuple[str, str]]:
    """Names and values of a store, for a table."""
    m = store.manifest
    c = m["corpus"]
    came: list[tuple[str, str]] = []
    if given.has_rows(store):
        training, held_out, dropped = given.sides(store)
        built = given.layout(store)
        came = [
            ("given rows", f"{training:,} for training, {held_out:,} held out, "
             f"{dropped:,} on both sides and left out"),
            ("built with", f"max_seq_length {built.max_seq_length}, "
             f"max_predictions_per_seq {built.max_predictions_per_seq}"),
        ]  # fmt: skip
    rows = [
        ("corpus", c["spec"]),
        *came,
        ("text", f"{c['bytes'] / 1e6:,.2f} MB, hash {c['content'][:16]}"),
        ("documents", f"{m['documents']:,} ({m['held_out_documents']:,} held out)"),
        ("sentences", f"{m['sentences']:,}"),
        ("tokens", f"{m['tokens']:,} ({m['dtype']})"),
        ("tokens a sentence", f"{m['tokens'] / m['sentences']:.1f}"),
        ("vocabulary", f"{m['vocabulary_size']:,}, hash {m['vocabulary'][:16]}"),
        ("[UNK]", f"{m['unknown_tokens'] / m['tokens']:.3%} of tokens"),
        ("one-sentence documents",
         f"{m['one_sentence_documents'] / m['documents']:.1%}"),
        ("equal copies dropped", f"{m['duplicate_documents']:,}"),
        ("store", f"{store.content[:16]}, {_bytes(store) / 1e6:,.1f} MB"),
    ]  # fmt: skip
    for number, source in enumerate(c["sources"]):
        if len(c["sources"]) > 1:
            count = int((store.sources == number).sum())
            rows.append(
                (f"source {number + 1}",
                 f"{source['kind']}, weight {source['weight']:g}, {count:,} documents")
            )  # fmt: skip
    return rows


def _bytes(store: Store) -> int:
    return sum(p.stat().st_size for p in store.directory.glob("*.*"))


def listing(corpus: Corpus) -> str:
    """What would be read, before it is."""
    lines = []
    for number, source in enumerate(corpus.sources):
        mine = [shard for shard in corpus.shards if shard.number == number]
        files = {f.path: f.size for shard in mine for f in shard.files if f.path}
        lines.append(
            f"{source.name}: {len(files):,} files, {sum(files.values()) / 1e6:,.2f} MB "
            f"as stored, {len(mine):,} shards"
        )
    return "\n".join(lines)


def vocabulary(vocab: AnyVocabulary, corpus: Corpus) -> str:
    """Coverage of a vocabulary on the text of a corpus (a sample of it)."""
    alone = Corpus(corpus.spec, corpus.sources, tuple(learning.sample(corpus, SAMPLE)))
    sentences = [s for text in corpora.documents(alone) for s in text][:SENTENCES]
    ids = [i for each in vocab.encode(sentences) for i in each]
    unknown = ids.count(vocab.ids["[UNK]"])
    starts = int(vocab.word_starts[ids].sum()) if ids else 0
    return (
        f"on {len(sentences):,} sentences: {len(ids):,} pieces of "
        f"{starts:,} words, {len(ids) / max(starts, 1):.3f} pieces a word, "
        f"{unknown / max(len(ids), 1):.4%} [UNK], "
        f"{len(set(ids)) / len(vocab):.1%} of the vocabulary used"
    )


def warnings(store: Store) -> list[str]:
    """What a person should know before training on a store."""
    m, found = store.manifest, []
    share = m["one_sentence_documents"] / m["documents"]
    if share > LONE and not given.has_rows(store):
        found.append(
            f"{share:.0%} of the documents have one sentence. Blank lines end "
            "documents: if one stands after every sentence, remove them; a document of "
            "one sentence can only give pairs with a random second segment (label 1 = "
            "random next)"
        )
    faults = m["corpus"]["faults"]
    return [*found, *Faults(False, faults["counts"], faults["places"]).lines()]


def table(store: Store) -> str:
    """The report for a terminal."""
    rows = facts(store)
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    for title, drawn in store.manifest["lengths"].items():
        lines += ["", title, *histogram(drawn)]
    lines += [f"\nwarning: {text}" for text in warnings(store)]
    return "\n".join(lines)


def markdown(store: Store) -> str:
    """provenance.md of a store."""
    lines = ["# What this store holds", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in facts(store)]
    lines += ["", "## Files read", ""]
    for source in store.manifest["corpus"]["sources"]:
        for file in source["files"]:
            digest = f", sha256 `{file['sha256']}`" if file.get("sha256") else ""
            lines.append(f"- {file['name']}, {file['bytes']:,} bytes{digest}")
    for title, drawn in store.manifest["lengths"].items():
        lines += ["", f"## {title.capitalize()}", "", "```"]
        lines += [*histogram(drawn), "```"]
    found = warnings(store)
    lines += ["", "## Warnings", ""] + [f"- {text}" for text in found or ["none"]]
    return "\n".join(lines) + "\n"
