"""Options for training decoders: bidirectional attention, and LoRA instead of training all weights."""

import torch
from torch import nn

from layerwise.encoder import LayerEncoder, probe_inputs
from layerwise.errors import InputError
from layerwise.extras import require


def attend_both_ways(encoder: LayerEncoder) -> None:
    """Make a causal model's attention bidirectional by `is_causal` in its config, which is saved with it.

    transformers respects it for models whose masks it creates; raises for a model that stays causal.
    """
    model = encoder.model
    if not _is_causal(model):
        raise InputError(f"[model] attention: {encoder.name} is not causal, its tokens see each other; leave it out")
    previous = getattr(model.config, "is_causal", None)
    model.config.is_causal = False  # type: ignore[union-attr]
    if _is_causal(model):
        model.config.is_causal = previous  # type: ignore[union-attr]
        raise InputError(
            f"[model] attention: {type(model).__name__} stays causal in this version of transformers; leave it out"
        )


def add_lora(model: nn.Module, *, rank: int, alpha: int, dropout: float, seed: int) -> None:
    """Freeze a model and add LoRA to all its linear layers, in place (Hu et al., 2022)."""
    require("lora", "LoRA", "peft")
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules="all-linear")
    devices = [parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"][:1]
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model)


def merge_lora(model: nn.Module) -> None:
    """Merge LoRA into the weights and restore the original modules, in place."""
    from peft.tuners.lora import LoraLayer

    added = [(name, module) for name, module in model.named_modules() if isinstance(module, LoraLayer)]
    for name, layer in added:
        layer.merge(safe_merge=True)  # raises for non-finite weights
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, layer.get_base_layer())
    if hasattr(model, "peft_config"):
        del model.peft_config
    model.requires_grad_(True)


@torch.no_grad()
def _is_causal(model: nn.Module) -> bool:
    """Whether later tokens do not affect earlier ones, in a batch with or without padding."""
    probe = probe_inputs(model)
    changed = probe["input_ids"].clone()
    changed[:, 3] = (changed[:, 3] + 1) % int(model.config.vocab_size)  # type: ignore[union-attr, arg-type]
    masks = (probe["attention_mask"], torch.ones_like(probe["attention_mask"]))
    firsts = [
        [model(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0] for ids in (probe["input_ids"], changed)]
        for mask in masks
    ]
    return any(torch.allclose(original, changed, rtol=1e-5, atol=1e-6) for original, changed in firsts)
