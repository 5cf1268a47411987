"""All tasks of a recipe, and their batches."""

from layerwise.encoder import SentenceTokenizer
from layerwise.train import MixingSettings
from layerwise.train.multitask.batches import MultitaskBatches
from support.multitasking import task

NAMES = ("mood", "same", "near")


def all_tasks(data, **more):
    return [task(name, data, **more.get(name, {})) for name in NAMES]


def batches_of(tasks, encoder, batch_size=8, seed=0, **mixing):
    lengths = {one.name: one.setup.objective.max_length for one in tasks}
    cut = {name: SentenceTokenizer(encoder.tokenizer, max_length=length) for name, length in lengths.items()}
    return MultitaskBatches(tasks, cut, batch_size=batch_size, mixing=MixingSettings(**mixing), pad_id=0, seed=seed)
