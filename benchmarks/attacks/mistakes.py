"""A person's mistakes: every command with wrong files, columns, values, folders, models, permissions and options."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path

import numpy as np
from attack import Attack, Tally
from calls import Ended, call, call_json, make_files, own_cache
from typer.main import get_command

from layerwise.cli.app import app

# What each command needs to work; {new} is not there, the others are good.
CALLS = {
    "info": "{model}",
    "embed": "{model} {text} -o {new}",
    "fit": "{model} {text} -o {new}",
    "search": "{model} {pairs} --save {new}",
    "evaluate": "{model} --tasks {task} -o {new}.json",
    "compare": "{result} {result}",
    "analyze": "{model} --pairs {pairs} --measure toksim -o {new}.json",
    "report": "{model} --pairs {pairs} -o {new}.html",
    "train": "small-simcse --model {model} --data {text} --dev none --no-test -o {new}",
    "multitask": "{recipe} --model {model} -o {new}",
    "predict": "{predictor} {text} -o {new}.csv",
    "recipes": "small-simcse",
    "demo": "{model} -o {new}",
    "data list": "stsb",
    "data fetch": "stsb --to {new}",
    "data check": "stsb",
}
# What stands in the place of a good file, folder or model.
WRONG = {
    "model": "{nowhere} {file} {empty_folder} {broken_config} {cut_weights} {no_tokenizer} no-such-owner/no-such-model",
    "predictor": "{nowhere} {file} {empty_folder} {model} {broken_config}",
    "text": "{nowhere}.txt {folder} {latin}.txt {junk}.parquet {junk}.jsonl {junk}.csv {file}.xyz {blank}.txt",
    "pairs": "{nowhere}.csv {folder} {latin}.csv {junk}.parquet {junk}.jsonl {junk}.csv {file}.xyz {blank}.csv "
    "{words}.csv {three}.csv no-such-task",
    "task": "{nowhere}.toml {folder} {junk}.toml {blank}.toml no-such-task {recipe_key}.toml",
    "recipe": "{nowhere}.toml {folder} {junk}.toml {blank}.toml no-such-recipe {recipe_key}.toml {file}.xyz",
    "result": "{nowhere}.json {folder} {junk}.json {blank}.json {list}.json",
    "new": "{file}/below {full} {locked}/new",
}
NUMBERS = ("x", "1e3x", "", "-7")
WORD = "no-such-thing"
WORDS_ARE_WRONG = (
    *("dtype", "device", "backend", "mix", "metric", "layers", "method", "pooling", "where", "left", "right", "score"),
    *("input-format", "format", "number-type", "empty", "protocol", "aggregate", "split", "suite", "measure", "theme"),
    *("with", "no-labels", "column", "keep", "prompt-name", "task", "columns", "set", "seeds", "dev", "data", "mix-a"),
    *("mix-b", "figure"),
)
# What looks wrong and is not: a text file has one column whatever its name, and three pairs have tokens too.
FREE = {("embed", "--column"), ("fit", "--column"), ("train", "--columns"), ("predict", "--columns")}
RIGHT = {"analyze {model} --pairs {three}.csv --measure toksim -o {new}.json", "demo {model} -o {full}"}
CONTRADICTIONS = (
    "embed {model} {text} -o {new}.npy --format parquet",
    "embed {model} {text} -o {new}.npy --keep text",
    "embed {model} {text} -o {new}.npy --empty skip",
    "embed {model} {text} -o {new}.xyz",
    "embed {model} {pairs} -o {new}",
    "embed {model} {text} -o {new} --input-format csv",
    "embed {model} {text} -o {new} --truncate-dim 4000",
    "embed {model} {text} -o {new} --max-length 100000",
    "fit {model} {text} -o {new} --with flow --dimensions 3",
    "fit {model} {text} -o {new} --dimensions 4000",
    "fit {model} {text} -o {new} --with components --components 4000",
    "fit {model} {text} -o {new} --limit 1",
    "fit {model} {text} -o {model}",
    "search {model} {pairs} --max-layer 99 --layers 50-60",
    "search {model} {pairs} --dev 79",
    "search {model} {pairs} --metric accuracy",
    "search {model} {pairs} --head",
    "search {model} {text}",
    "search {model} {task} --left a",
    "search {model} {pairs} --save {full}",
    "search {model} {pairs} --table {new}.xyz",
    "search {model} {pairs} --where score",
    "evaluate {model} --tasks {task} --layers search --every-layer",
    "evaluate {model} --tasks {task} --layers search",
    "evaluate {model} --tasks {task} --pooling cls",
    "evaluate {model} --tasks , ",
    "evaluate {model} --tasks {task} -o {new}.xyz",
    "evaluate {model} --tasks {task} --data {nowhere}",
    "compare {result} {result} --mix-a 99",
    "analyze",
    "analyze {model} --against {model}",
    "analyze {model} --measure all,toksim",
    "analyze {model} --measure toksim -o {new}.xyz",
    "analyze {model} --measure toksim,scores -o {new}.png",
    "analyze {model} --measure training",
    "analyze {model} --train {empty_folder}",
    "analyze {model} --measure toksim --sentence hello",
    "report {model} -o {new}.pdf",
    "report {model} --against {model} -o {new}.html",
    "report {model} --train {folder} -o {new}.html",
    "train {recipe}",
    "train small-simcse --model {model} --data {folder} --data {empty_folder} -o {new}",
    "train small-simcse --model {model} --data {pairs} -o {new}",
    "train small-simcse --model {model} --data {text} --dev none --seeds 1,1 -o {new}",
    "train small-simcse --model {model} --data {text} --dev none --set train.steps=-1 -o {new}",
    "train small-simcse --model {model} --data {text} --dev none --set nothing -o {new}",
    "train small-simcse --model {model} --data {text} --dev none -o {full}",
    "multitask small-simcse",
    "multitask {recipe} -o {new}",
    "multitask {recipe} --model {model} --set train.steps=many -o {new}",
    "multitask {recipe} --model {model} -o {full}",
    "predict {predictor} {text} -o {new}",
    "predict {predictor} {text} -o {text}",
    "predict {predictor} {pairs} -o {new}.csv",
    "predict {predictor} {text} -o {result}",
    "predict {predictor} {text} -o {new}.csv --columns a,b",
    "search {model} {pairs} --prompts no-such-prompt",
    "search {model} {pairs} --prompts {nowhere}.toml",
    "search {model} {pairs} --prompts means --remove many",
    "search {model} {pairs} --prompts means --max-cost 0",
    "search {model} {pairs} --prompts means --method beam",
    "search {model} {pairs} --prompts means --corpus {text}",
    "search {model} {text} --no-labels dropout --prompts means",
    "search {model} {text} --no-labels all --remove mean --corpus {text}",
    "report {model} --prompts no-such-prompt -o {new}.html",
    "embed {model} {text} -o {new} --precision int8 --backend torch",
    "embed {model} {text} -o {new} --precision int4",
    "serve {nowhere}",
    "serve {file}",
    "serve {empty_folder}",
    "serve {broken_config}",
    "serve {model} {model}",
    "serve {model} --port 99999",
    "serve {model} --port x",
    "serve {model} --host 0.0.0.0",
    "serve {model} --keys {nowhere}",
    "serve {model} --keys {blank}.txt",
    "serve {model} --index x",
    "serve {model} --index a={nowhere}",
    "serve {model} --config {nowhere}.toml",
    "serve {model} --config {junk}.toml",
    "serve {model} --max-tokens 1",
    "serve {model} --max-queue-tokens 10",
    "serve {model} --deadline 0",
    "serve {model} --backend no-such-backend",
    "serve {model} --precision int4",
    "serve {model} --dtype no-such-type",
    "cache wipe",
    "cache clear a b",
    "data fetch",
    "data list --suite no-such-suite",
    "recipes no-such-recipe",
    "no-such-command",
)


def generate() -> Iterator[str]:
    """Wrong calls, as they are typed."""
    for command, good in CALLS.items():
        words = good.split()
        for place, word in enumerate(words):
            name = next((name for name in WRONG if f"{{{name}}}" in word), None)
            if name is not None:
                for wrong in WRONG[name].split():
                    if wrong == "{full}" and word != "{new}":
                        continue  # full.json beside it is not there
                    changed = word.replace(f"{{{name}}}", wrong)
                    wrong_call = " ".join([command, *words[:place], changed, *words[place + 1 :]])
                    if wrong_call not in RIGHT:
                        yield wrong_call
            if not word.startswith("-") and not (place and words[place - 1].startswith("-")) and command != "info":
                rest = words[:place] + words[place + 1 :]
                if command not in ("recipes", "demo", "data list", "data check", "analyze"):  # there it may be missing
                    yield " ".join([command, *rest])
        yield f"{command} {good} too many words here"
        for option, kind in options_of(command):
            yield f"{command} {good} {option[:-1]}q"
            if kind == "flag":
                yield f"{command} {good} {option}=yes"
                continue
            yield f"{command} {good} {option}"
            if kind == "number":
                yield from (f"{command} {good} {option}={number}" for number in NUMBERS)
            elif option[2:] in WORDS_ARE_WRONG and (command, option) not in FREE:
                yield f"{command} {good} {option} {WORD}"
    yield from CONTRADICTIONS


def options_of(command: str) -> Iterator[tuple[str, str]]:
    """The long options of a command, each a flag, a number or a text."""
    found = get_command(app)
    for name in command.split():
        found = found.commands[name]
    kinds = {name: str(one.annotation) for name, one in signature(found.callback).parameters.items()}
    for parameter in found.params:
        if parameter.param_type_name == "option" and parameter.name in kinds:
            kind = kinds[parameter.name].removeprefix("typing.Annotated[")
            number = kind.startswith(("int", "float"))
            yield max(parameter.opts, key=len), "flag" if parameter.is_flag else "number" if number else "text"


def make_places(folder: Path, random: np.random.Generator) -> dict[str, Path]:
    """Good files and wrong ones by name."""
    places = make_files(folder, random)
    for name in ("folder", "empty_folder", "full", "locked"):
        (folder / name).mkdir()
    for ending in ("csv", "txt", "toml", "json", "jsonl", "parquet"):
        (folder / f"blank.{ending}").write_text("")
        (folder / f"latin.{ending}").write_bytes(b"sentence1,sentence2,score\nna\xefve,caf\xe9,1\n")
        (folder / f"junk.{ending}").write_bytes(bytes(random.integers(0, 256, 400, dtype=np.uint8)))
    (folder / "file").write_text("no folder")
    (folder / "file.xyz").write_text("of an unknown format")
    (folder / "full" / "precious.txt").write_text("precious")
    (folder / "words.csv").write_text("sentence1,sentence2,score\n" + "a river,a door,high\n" * 30)
    (folder / "three.csv").write_text("sentence1,sentence2,score\n" + "a river,a door,1\n" * 3)
    (folder / "list.json").write_text("[1, 2, 3]")
    (folder / "recipe_key.toml").write_text('[trian]\nsteps = 4\n[[task]]\nnaem = "mine"\n')
    for name in ("broken_config", "cut_weights", "no_tokenizer"):
        shutil.copytree(places["model"], folder / name)
    (folder / "broken_config" / "config.json").write_text('{"model_type": ')
    weights = folder / "cut_weights" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    for path in (folder / "no_tokenizer").glob("*token*"):
        path.unlink()
    call_json("evaluate", places["model"], "--tasks", places["task"], "-o", folder / "result.json")
    call_json("multitask", places["recipe"], "--model", places["model"], "-o", folder / "trained")
    places |= {"result": folder / "result.json", "predictor": folder / "trained" / "model", "new": folder / "new"}
    names = "nowhere file folder empty_folder full locked blank latin junk words three list recipe_key"
    places |= {name: folder / name for name in (*names.split(), "broken_config", "cut_weights", "no_tokenizer")}
    (folder / "locked").chmod(0o555)
    for path in (folder, *folder.parents[:1]):
        path.chmod(0o755)
    return places


@contextmanager
def without_rights() -> Iterator[None]:
    """As a user who may not write everywhere: root may."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file with its size and time."""
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def fault(ended: Ended, before: dict, after: dict) -> str:
    """What is wrong with the end of a wrong call; empty if nothing is."""
    lines = [line for line in ended.error.splitlines() if not line.startswith(("WARNING", "INFO"))]
    if ended.crash or "Traceback" in ended.error:
        return f"a traceback: {ended.crash or lines[-1]}"
    if ended.code != 2:
        return f"exit code {ended.code}"
    if len(lines) != 1 or not lines[0].startswith("error: "):
        return f"{len(lines)} lines of error: {' | '.join(lines)[:300]}"
    if ended.out and not ended.out.startswith("stsb: from "):  # what is being fetched
        return f"printed {ended.out[:100]!r}"
    if before != after:
        return f"wrote {sorted(set(before.items()) ^ set(after.items()))[:3]}"
    return ""


def mistakes(random: np.random.Generator, folder: Path, commands: Sequence[str] = ()) -> Tally:
    """Run wrong calls: every one, or some."""
    tally = Tally()
    with own_cache(folder / "cache"):
        work = folder / "work"
        work.mkdir()
        places = {name: str(path) for name, path in make_places(work, random).items()}
        before = snapshot(work)
        for command in commands or dict.fromkeys(generate()):
            words = command.format(**places).split()
            if "{locked}" in command:
                with without_rights():
                    ended = call(*words)
            else:
                ended = call(*words)
            after = snapshot(work)
            wrong = fault(ended, before, after)
            tally.check(not wrong, f"{command}: {wrong}")
            if before != after:
                for path in work.glob("new*"):  # it would be in the way of the next call
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                after = snapshot(work)
            before = after
    return tally


ATTACKS = [
    Attack(
        name="mistakes",
        tries="every command with wrong files, columns, values, folders, models, permissions and options",
        promise="exit code 2, one line of error, no traceback, nothing written",
        run=mistakes,
        mended="wrong options were boxes of several lines; a failed `embed` left a folder; unknown splits, methods, "
        "poolings and data folders, and negative counts, were passed over in silence; missing files were told after "
        "seconds",
        test="tests/cli/test_mistakes.py",
    )
]
