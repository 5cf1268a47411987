"""The examples at the end of every command's `--help`; a test parses each of them with the command itself."""

# by command: lines that fit into 60 columns, the margin included
EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "layerwise info default",
        "layerwise search default pairs.csv --save best",
        "layerwise embed best corpus.txt -o vectors",
        "layerwise --install-completion",
    ),
    "info": ("layerwise info default", "layerwise info my-model --json"),
    "search": (
        "layerwise search default pairs.csv --save best",
        "layerwise search default task.toml",
        "layerwise search default corpus.txt --no-labels all",
        "layerwise search my-llm pairs.csv --prompts auto",
    ),
    "embed": (
        "layerwise embed default corpus.txt -o vectors",
        "layerwise embed best corpus.csv --column body -o v.npy",
        "layerwise embed best s3://b/rows.csv -o s3://b/vectors",
        "layerwise embed best c.txt -o v --engine ray",
        "layerwise embed --verify vectors",
    ),
    "index": (
        "layerwise index build vectors -o my-index",
        "layerwise index load v --to postgresql://host/db/docs",
    ),
    "index build": (
        "layerwise index build vectors -o my-index",
        "layerwise index build vectors -o fast --kind hnsw",
    ),
    "index load": ("layerwise index load v --to postgresql://host/db/docs",),
    "query": (
        'layerwise query my-index "a cat on a mat" -k 5',
        "layerwise query vectors --file queries.txt --json",
    ),
    "dedup": (
        "layerwise dedup vectors --threshold 0.95 -o kept.csv",
        "layerwise dedup vectors -o kept.parquet --json",
    ),
    "cluster": ("layerwise cluster vectors -k 20 -o groups.csv",),
    "evaluate": (
        "layerwise evaluate default --suite sts",
        "layerwise evaluate default --task task.toml -o a.json",
        "layerwise evaluate default --task stsb --every-layer",
    ),
    "compare": (
        "layerwise compare a.json b.json",
        "layerwise compare a.json b.json c.json -o ties.svg",
    ),
    "explain": ('layerwise explain default "a cat sat" "a dog ran"',),
    "analyze": (
        "layerwise analyze default --measure toksim",
        "layerwise analyze default --pairs pairs.csv --json",
        "layerwise analyze --list",
    ),
    "report": (
        "layerwise report default --pairs pairs.csv",
        "layerwise report default --against my-model -o r.html",
    ),
    "fit": ("layerwise fit default corpus.txt -o fitted",),
    "train": (
        "layerwise train small-simcse --model default --data a.txt",
        "layerwise train --suggest corpus.txt",
    ),
    "multitask": ("layerwise multitask tasks.toml -o trained",),
    "predict": ("layerwise predict trained/model rows.csv -o out.csv",),
    "serve": (
        "layerwise serve default --port 8000",
        "layerwise serve best=mine --index docs=my-index",
    ),
    "recipes": ("layerwise recipes", "layerwise recipes small-simcse"),
    "demo": ("layerwise demo --out demo-output",),
    "doctor": ("layerwise doctor", "layerwise doctor --json"),
    "schema": ("layerwise schema", "layerwise schema search"),
    "cache": ("layerwise cache", "layerwise cache clear"),
    "cache clear": ("layerwise cache clear", "layerwise cache clear 3f2a"),
    "data": ("layerwise data list", "layerwise data fetch --suite sts"),
    "data list": ("layerwise data list", "layerwise data list stsb --json"),
    "data fetch": ("layerwise data fetch stsb", "layerwise data fetch --suite sts"),
    "data check": ("layerwise data check --suite sts --data my-data",),
}


def examples_of(command: str) -> str:
    """Return the text after the options in `--help`; empty for a command without examples."""
    lines = EXAMPLES.get(command, ())
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\n\n".join([title, *lines]) if lines else ""
