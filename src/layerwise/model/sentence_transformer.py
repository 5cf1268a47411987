"""Converts a model to a SentenceTransformer: with its modules if they can express the mix, and only needed blocks."""

import copy
import tempfile
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from layerwise.encoder import DTYPES, LayerEncoder, UntappedLayers, block_lists, keep_in_config, probe_inputs
from layerwise.mixes import Mix
from layerwise.model.head import ACTIVATIONS, AnyHead, FlowHead, Head
from layerwise.model.parts import ModelParts
from layerwise.muted import quiet

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

HOST_MODES = {"mean": "mean", "cls": "cls", "max": "max", "last": "lasttoken", "weighted-mean": "weightedmean"}


def to_sentence_transformer(encoder: LayerEncoder, parts: ModelParts) -> tuple["SentenceTransformer", int]:
    """Build a SentenceTransformer with the same embeddings and a copy of the weights; return it and its depth."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    cut, blocks = cut_to_fit(encoder.model, parts.mix.layers, encoder.depth)
    pooling = _mix_modules(parts.mix, blocks=blocks, width=encoder.width)
    with quiet():
        prompted = list(parts.mix.poolings) if parts.mix.is_prompted else None
        needs_layers = type(pooling[0]).__name__ != "Pooling"
        transformer = _transformer(cut, encoder, needs_layers=needs_layers, prompted=prompted)
        # Mixes of layers are float32 and make everything after them so; plain pooling keeps the encoder's type.
        number_type = torch.float32 if needs_layers else DTYPES[encoder.dtype]
        heads = [_flow(head) if isinstance(head, FlowHead) else _dense(head).to(number_type) for head in parts.heads]
        model = SentenceTransformer(
            modules=[transformer, *pooling, *heads, *([Normalize()] if parts.normalize else [])],
            device=str(encoder.device),
            prompts=parts.prompts,
            default_prompt_name=parts.default_prompt_name,
            truncate_dim=parts.truncate_dim,
            similarity_fn_name=parts.similarity,  # type: ignore[arg-type] # one of the literals, or refused
        )
    return model, blocks


def is_native(mix: Mix, heads: Sequence[AnyHead] = ()) -> bool:
    """Whether plain sentence-transformers can compute a mix and its heads."""
    return mix.is_native and not any(isinstance(head, FlowHead) for head in heads)


def cut_to_fit(model: nn.Module, layers: Sequence[int], depth: int) -> tuple[nn.Module, int]:
    """Return the model with the fewest blocks that leave these layers unchanged, and their number.

    Most models need as many blocks as their highest layer. ModernBERT normalises after its last block, so a layer
    below the top needs one block more than that. Every cut is checked on a few tokens.
    """
    probe = probe_inputs(model)
    with torch.inference_mode():
        expected = UntappedLayers(model, depth).read(probe, layers, Tensor.clone)
        for blocks in range(max(1, max(layers)), depth):
            cut = _with_blocks(model, blocks, depth)
            if not _is_loadable(cut):
                continue
            try:
                output = cut(**probe, output_hidden_states=True, return_dict=True)
            except IndexError:  # XLM keeps the parts of its blocks in several lists
                continue
            if len(output.hidden_states) == blocks + 1 and all(
                torch.allclose(output.hidden_states[layer], expected[layer], rtol=1e-4, atol=1e-5) for layer in layers
            ):
                return cut, blocks
    return model, depth


def _with_blocks(model: nn.Module, blocks: int, depth: int) -> nn.Module:
    """Copy the model with only its first `blocks` blocks, and a matching config."""
    cut = copy.deepcopy(model)
    keep_in_config(cut.config, range(1, blocks + 1), depth)
    stack = next(block_lists(cut, depth=depth), None)
    if stack is not None and len(stack) == depth:
        del stack[blocks:]
    return cut


def _is_loadable(cut: nn.Module) -> bool:
    """Whether the tensors match the model's config, so that it can be saved and loaded."""
    with torch.device("meta"):
        fresh = type(cut)(copy.deepcopy(cut.config))
    shapes, expected = ({name: t.shape for name, t in module.state_dict().items()} for module in (cut, fresh))
    return shapes == expected


def _mix_modules(mix: Mix, *, blocks: int, width: int) -> list[nn.Module]:
    """Return the modules from an encoder of `blocks` blocks to one embedding; `mix` is resolved."""
    from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling

    if not mix.is_native or mix.terms is None:
        from layerwise.model.modules import MixPooling

        weights = {} if mix.fitted is None else {name: t.clone() for name, t in mix.fitted.state_dict().items()}
        return [MixPooling(str(mix), width, blocks, weights=weights)]
    pooling = Pooling(width, pooling_mode=HOST_MODES[mix.pooling])
    if mix.layers == (blocks,):
        return [pooling]
    shares = {view.layer: share for view, share, _ in mix.terms}
    values = torch.tensor([shares.get(layer, 0.0) for layer in range(mix.layers[0], blocks + 1)])
    values = values if len(set(shares.values())) > 1 else (values > 0).float()
    mixing = WeightedLayerPooling(
        width, num_hidden_layers=blocks, layer_start=mix.layers[0], layer_weights=nn.Parameter(values)
    )
    return [mixing, pooling]


def _transformer(model: Any, encoder: LayerEncoder, *, needs_layers: bool, prompted: list[str] | None) -> Any:
    from sentence_transformers.sentence_transformer.modules import Transformer

    from layerwise.model.modules import PromptedTransformer

    tokenizer = copy.deepcopy(encoder.tokenizer)
    tokenizer.padding_side = "right"  # as here: positions count from the first token
    if prompted is None:
        tokenizer.chat_template = None  # the host would put every text into it; where a prompt asks for it, we do
    if tokenizer.pad_token is None:  # the host cannot pad without one, and which it is makes no difference
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    with tempfile.TemporaryDirectory(prefix="layerwise-", ignore_cleanup_errors=True) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        kind: Any = Transformer if prompted is None else partial(PromptedTransformer, poolings=prompted)
        transformer = kind(
            folder,
            config_kwargs={"output_hidden_states": needs_layers},
            model_kwargs={"dtype": model.dtype, "use_safetensors": True},
        )
    transformer.max_seq_length = encoder.max_length
    return transformer


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
