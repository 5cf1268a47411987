"""From an encoder and sentences to layer views: loading, tapping, pooling, batching, caching."""
