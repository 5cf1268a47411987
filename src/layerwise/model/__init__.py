"""The saved, loadable thing: an encoder, a mix, and what comes behind it, as a sentence-transformers folder."""
