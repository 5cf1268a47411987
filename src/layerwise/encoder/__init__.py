"""Loads encoders and reads their layers: a view is one layer's pooled vector of a sentence, taken inside the pass."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.encoder.arguments import check_sentences
    from layerwise.encoder.arrays import Array
    from layerwise.encoder.batches import Batch, padded, token_batches
    from layerwise.encoder.blocks import even_blocks, keep_in_config, model_with_blocks
    from layerwise.encoder.cache import CacheEntry, ViewCache, ViewKey
    from layerwise.encoder.dropout import dropout_rate, plain_dropout
    from layerwise.encoder.fingerprint import tokenizer_fingerprint
    from layerwise.encoder.folders import DEFAULT, ModelFolder, find_model, is_default, local_model
    from layerwise.encoder.layer_encoder import LayerEncoder, read_views
    from layerwise.encoder.load import DTYPES, pick_device
    from layerwise.encoder.onnx_sessions import graphs_folder
    from layerwise.encoder.pooling import MASK, POOLINGS, pooled_mask
    from layerwise.encoder.prompts import (
        PLAIN,
        Pooled,
        Prompt,
        by_prompt,
        named_prompt,
        parse_pooling,
        prompt_library,
        prompts_for,
        read_prompts,
    )
    from layerwise.encoder.smollm import smollm2_folder
    from layerwise.encoder.streaming import (
        Progress,
        ahead,
        no_progress,
        run_batch,
        stream,
        window_rows,
        windows_of,
    )
    from layerwise.encoder.taps import (
        LayerReader,
        TappedLayers,
        UntappedLayers,
        block_lists,
        layer_reader,
        probe_inputs,
        resolve_layer,
        valid_range,
    )
    from layerwise.encoder.tokens import PromptTokenizer, SentenceTokenizer, Tokens

__getattr__, __dir__, __all__ = door(__name__, __file__)
