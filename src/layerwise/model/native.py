"""A mix as sentence-transformers modules, its own wherever they can express it."""

import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from layerwise.mixes import LayerAttention, LayerMix, LayerSet, LayerWeights
from layerwise.model.head import ACTIVATIONS, AnyHead, FlowHead, Head

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def is_native(mix: LayerMix, heads: Sequence[AnyHead] = ()) -> bool:
    """Whether plain sentence-transformers can compute a mix and what is behind it: it mixes tokens, then pools them."""
    if not isinstance(mix, LayerSet | LayerWeights) or any(isinstance(head, FlowHead) for head in heads):
        return False
    return mix.pooling in ("mean", "cls") or len(mix.layers) == 1


def layer_weights(mix: LayerMix) -> dict[int, float]:
    """A set or weights as a weight for each layer."""
    if isinstance(mix, LayerWeights):
        return dict(mix.weights)
    return dict.fromkeys(mix.layers, 1.0)


def mix_modules(mix: LayerMix, *, blocks: int, width: int) -> list[nn.Module]:
    """From an encoder of `blocks` blocks to one embedding; `mix` is resolved."""
    from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling

    if isinstance(mix, LayerAttention):
        return [_attention(mix)]
    if not is_native(mix):
        from layerwise.model.modules import LayerMixPooling

        return [LayerMixPooling(str(mix), width)]
    pooling = Pooling(width, pooling_mode=mix.pooling)
    if isinstance(mix, LayerSet) and mix.layers == (blocks,):
        return [pooling]
    weights = layer_weights(mix)
    lowest = min(mix.layers)
    values = torch.tensor([weights.get(layer, 0.0) for layer in range(lowest, blocks + 1)])
    mixing = WeightedLayerPooling(
        width, num_hidden_layers=blocks, layer_start=lowest, layer_weights=nn.Parameter(values)
    )
    return [mixing, pooling]


def build_sentence_transformer(
    model: Any,
    tokenizer: Any,
    *,
    mix: LayerMix,
    blocks: int,
    max_length: int,
    heads: Sequence[AnyHead],
    normalize: bool,
    device: torch.device,
    **options: Any,
) -> "SentenceTransformer":
    """A SentenceTransformer with a copy of the model; `options` go to its constructor (prompts, …)."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Transformer

    with tempfile.TemporaryDirectory(prefix="layerwise-", ignore_cleanup_errors=True) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        modules = mix_modules(mix, blocks=blocks, width=int(model.config.hidden_size))
        needs_layers = type(modules[0]).__name__ != "Pooling"
        transformer = Transformer(
            folder,
            config_kwargs={"output_hidden_states": needs_layers},
            model_kwargs={"dtype": model.dtype, "use_safetensors": True},
        )
        transformer.max_seq_length = max_length
    # Weights over layers are float32 and make everything behind them so; plain pooling keeps the encoder's type.
    weighted = type(modules[0]).__name__ in ("WeightedLayerPooling", "LayerAttentionPooling")
    number_type = torch.float32 if weighted else model.dtype
    modules += [_flow(head) if isinstance(head, FlowHead) else _dense(head).to(number_type) for head in heads]
    if normalize:
        modules.append(Normalize())
    return SentenceTransformer(modules=[transformer, *modules], device=str(device), **options)


def _attention(mix: LayerAttention) -> nn.Module:
    from layerwise.model.modules import LayerAttentionPooling

    pooling = LayerAttentionPooling(str(mix), mix.trained.width, mix.layers[-1])
    pooling.network.load_state_dict(mix.trained.state_dict())
    return pooling


def _dense(head: Head) -> nn.Module:
    from sentence_transformers.sentence_transformer.modules import Dense

    linear = head.linear
    dense: nn.Module = Dense(
        linear.in_features,
        linear.out_features,
        bias=linear.bias is not None,
        activation_function=ACTIVATIONS[head.activation](),
        init_weight=linear.weight.detach().cpu(),
        init_bias=None if linear.bias is None else linear.bias.detach().cpu(),
    )
    return dense


def _flow(head: FlowHead) -> nn.Module:
    from layerwise.model.modules import FlowTransform

    flow = FlowTransform(**head.network.config())
    flow.network.load_state_dict(head.network.state_dict())
    return flow
