"""From an encoder and sentences to layer views: loading, tapping, pooling, batching, caching."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.encoder.batches import padded_texts as padded_texts
    from layerwise.encoder.cache import CacheEntry as CacheEntry
    from layerwise.encoder.cache import ViewCache as ViewCache
    from layerwise.encoder.cache import ViewKey as ViewKey
    from layerwise.encoder.dropout import dropout_rate as dropout_rate
    from layerwise.encoder.fingerprint import tokenizer_fingerprint as tokenizer_fingerprint
    from layerwise.encoder.folders import DEFAULT as DEFAULT
    from layerwise.encoder.folders import ModelFolder as ModelFolder
    from layerwise.encoder.folders import find_model as find_model
    from layerwise.encoder.layer_encoder import LayerEncoder as LayerEncoder
    from layerwise.encoder.layer_encoder import check_sentences as check_sentences
    from layerwise.encoder.load import DTYPES as DTYPES
    from layerwise.encoder.load import pick_device as pick_device
    from layerwise.encoder.onnx import graphs_folder as graphs_folder
    from layerwise.encoder.pooling import POOLINGS as POOLINGS
    from layerwise.encoder.streaming import Array as Array
    from layerwise.encoder.streaming import Progress as Progress
    from layerwise.encoder.streaming import ahead as ahead
    from layerwise.encoder.streaming import no_progress as no_progress
    from layerwise.encoder.streaming import stream as stream
    from layerwise.encoder.streaming import window_rows as window_rows
    from layerwise.encoder.streaming import windows_of as windows_of
    from layerwise.encoder.taps import LayerReader as LayerReader
    from layerwise.encoder.taps import TappedLayers as TappedLayers
    from layerwise.encoder.taps import UntappedLayers as UntappedLayers
    from layerwise.encoder.taps import block_lists as block_lists
    from layerwise.encoder.taps import layer_reader as layer_reader
    from layerwise.encoder.taps import probe_inputs as probe_inputs
    from layerwise.encoder.taps import resolve_layer as resolve_layer
    from layerwise.encoder.taps import valid_range as valid_range
    from layerwise.encoder.tokens import SentenceTokenizer as SentenceTokenizer
    from layerwise.encoder.tokens import Tokens as Tokens

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "Array": ".streaming",
        "CacheEntry": ".cache",
        "DEFAULT": ".folders",
        "DTYPES": ".load",
        "LayerEncoder": ".layer_encoder",
        "LayerReader": ".taps",
        "ModelFolder": ".folders",
        "POOLINGS": ".pooling",
        "Progress": ".streaming",
        "SentenceTokenizer": ".tokens",
        "TappedLayers": ".taps",
        "Tokens": ".tokens",
        "UntappedLayers": ".taps",
        "ViewCache": ".cache",
        "ViewKey": ".cache",
        "ahead": ".streaming",
        "block_lists": ".taps",
        "check_sentences": ".layer_encoder",
        "dropout_rate": ".dropout",
        "find_model": ".folders",
        "graphs_folder": ".onnx",
        "layer_reader": ".taps",
        "no_progress": ".streaming",
        "padded_texts": ".batches",
        "pick_device": ".load",
        "probe_inputs": ".taps",
        "resolve_layer": ".taps",
        "stream": ".streaming",
        "tokenizer_fingerprint": ".fingerprint",
        "valid_range": ".taps",
        "window_rows": ".streaming",
        "windows_of": ".streaming",
    },
)
