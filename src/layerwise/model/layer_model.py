"""LayerModel: an encoder and a layer mix that encode like a SentenceTransformer."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from layerwise.encoder.embedded import DEFAULT
from layerwise.encoder.layer_encoder import LayerEncoder, check_sentences
from layerwise.encoder.stream import Array, Progress, no_progress, window_rows, windows_of
from layerwise.errors import InputError, ModelError
from layerwise.mixes import LayerMix, LayerWk
from layerwise.mixes.wk import without_last_token
from layerwise.model.convert import Precision, converted
from layerwise.model.head import AnyHead, check_widths, head_of
from layerwise.model.prompts import all_prompts, prompt_text, with_prompt
from layerwise.model.ready_mix import ready_mix
from layerwise.model.saved import read_saved
from layerwise.model.training_facts import checked_facts
from layerwise.postprocess.base import Postprocess
from layerwise.postprocess.fitted_on import ENCODER, FittedOn

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


class LayerModel:
    """Sentence embeddings by a mix of an encoder's layers.

    Args:
        encoder: A `LayerEncoder`, or what makes one: a folder, a hub name.
        mix: A layer mix or its text, such as "1,2,12 @ mean".
        heads: What stands behind the mix, in order: linear layers, flows.
        normalize: Make every embedding's length 1.
        prompts: Texts put before a sentence, by name.
        default_prompt_name: The prompt for `encode` where the caller names none.
        similarity: How embeddings are compared: "cosine", "dot", "euclidean" or "manhattan".
        chosen: How the mix was chosen, for the model card.
        fitted_on: The text that any part was fitted or trained on, for the model card and for honest evaluation.
        training: Facts about the training (recipe, data, seeds, scores, …), saved with the model and shown in its card.

    >>> model = LayerModel("default", "1,6 @ mean")
    >>> model.encode(["A cat sat.", "It rained."]).shape
    (2, 384)
    """

    def __init__(
        self,
        encoder: LayerEncoder | str | os.PathLike[str] = DEFAULT,
        mix: LayerMix | str = "last",
        *,
        heads: Sequence[AnyHead] = (),
        normalize: bool = False,
        prompts: dict[str, str] | None = None,
        default_prompt_name: str | None = None,
        similarity: str = "cosine",
        chosen: str = "by hand",
        fitted_on: Sequence[FittedOn] = (),
        training: dict[str, Any] | None = None,
    ) -> None:
        self.encoder = encoder if isinstance(encoder, LayerEncoder) else LayerEncoder(encoder)
        self.mix: LayerMix = ready_mix(mix, self.encoder)
        self.heads = tuple(head.to(self.encoder.device) for head in heads)
        self.normalize = normalize
        self.prompts = all_prompts(prompts)
        self.default_prompt_name = default_prompt_name
        self.similarity_fn_name = similarity
        self.chosen = chosen
        self.fitted_on = tuple(fitted_on)
        self.training = checked_facts(training)
        if similarity not in _SIMILARITIES:
            raise InputError(f"Unknown similarity {similarity!r}. Known: {', '.join(_SIMILARITIES)}")
        check_widths(self.mix.width(self.encoder.width), self.heads)
        if default_prompt_name is not None:
            self.prompt(None, None)

    @classmethod
    def load(
        cls,
        name_or_folder: str | os.PathLike[str] = DEFAULT,
        *,
        mix: LayerMix | str | None = None,
        **options: Any,
    ) -> Self:
        """Load a saved model, any sentence-transformers folder or name, or an encoder (mean of its last layer).

        Args:
            name_or_folder: As for `LayerEncoder`.
            mix: Take this mix instead of the model's own; what stands behind the model's own mix is left out.
            options: As for `LayerEncoder`: device, dtype, max_length, …
        """
        encoder = LayerEncoder(name_or_folder, **options)
        saved = read_saved(encoder.folder)
        if mix is not None:
            return cls(
                encoder,
                mix,
                prompts=saved.prompts,
                default_prompt_name=saved.default_prompt_name,
                similarity=saved.similarity,
                fitted_on=[record for record in saved.fitted_on if record.what == ENCODER],
                training=saved.facts.get("training"),
            )
        return cls(
            encoder,
            saved.mix,
            heads=saved.heads,
            normalize=saved.normalize,
            prompts=saved.prompts,
            default_prompt_name=saved.default_prompt_name,
            similarity=saved.similarity,
            chosen=str(saved.facts.get("chosen", "as the model was saved")),
            fitted_on=saved.fitted_on,
            training=saved.facts.get("training"),
        )

    def with_postprocess(self, fitted: Postprocess) -> Self:
        """A model with what was fitted on this model's embeddings behind it, and the record of that text.

        Such as `Whitening(256).fit(model.encode(texts), fitted_on=FittedOn.of(texts, source="my texts"))`.
        """
        fitted.check_fitted()
        if self.normalize:
            raise ModelError("Nothing can stand behind embeddings of length 1; fit on a model with normalize=False")
        return self.replaced(heads=(*self.heads, head_of(fitted)), fitted_on=(*self.fitted_on, fitted.fitted_on_))

    def replaced(self, **parts: Any) -> Self:
        """The same encoder with other parts, named as in the constructor; what is not named stays."""
        named = ("mix", "heads", "normalize", "prompts", "default_prompt_name", "chosen", "fitted_on", "training")
        own = {name: getattr(self, name) for name in named} | {"similarity": self.similarity_fn_name}
        return type(self)(self.encoder, **own | parts)

    @property
    def width(self) -> int:
        """The length of an embedding."""
        return self.heads[-1].out_features if self.heads else self.mix.width(self.encoder.width)

    def get_embedding_dimension(self) -> int:
        """The length of an embedding, under the host library's name."""
        return self.width

    def encode(
        self,
        inputs: str | Sequence[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,  # noqa: ARG002 - callers of sentence-transformers pass it
        show_progress_bar: bool = False,
        precision: Precision = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
    ) -> Any:
        """Embeddings of sentences, rows in their order; of one string, one vector.

        Args:
            inputs: The texts. Empty ones are encoded as the model's special tokens alone, with a warning.
            prompt_name: The name of a prompt to put before each.
            prompt: A prompt itself.
            batch_size: Taken for compatibility and not used: batches are made by tokens, see `LayerEncoder`.
            show_progress_bar: Show one.
            precision: "float32", or one of sentence-transformers' quantised kinds.
            convert_to_numpy: A numpy array; without it and `convert_to_tensor`, a list of tensors.
            convert_to_tensor: A tensor on the encoder's device.
            normalize_embeddings: Make every embedding's length 1.
            truncate_dim: Keep only so many of the first dimensions.
        """
        single = isinstance(inputs, str)
        texts = check_sentences([inputs] if isinstance(inputs, str) else inputs)
        before = self.prompt(prompt_name, prompt)
        texts = [before + text for text in texts] if before else texts
        found = np.empty((len(texts), self.kept_width(truncate_dim)), dtype=np.float32)
        start = 0
        with tqdm(total=len(texts), unit="sentence", desc="Embedding") if show_progress_bar else nullcontext() as bar:
            for part in self.stream(
                windows_of(texts, window_rows(4 * found.shape[1])),
                normalize=normalize_embeddings,
                truncate_dim=truncate_dim,
                progress=no_progress if bar is None else bar.update,
            ):
                found[start : start + len(part)] = part
                start += len(part)
        result = converted(found, single, precision, convert_to_tensor or not convert_to_numpy, self.encoder.device)
        return list(result) if not (convert_to_numpy or convert_to_tensor or single) else result

    def encode_query(self, inputs: str | Sequence[str], **options: Any) -> Any:
        """`encode` with the prompt named "query", unless another is given."""
        return self.encode(inputs, **with_prompt("query", options))

    def encode_document(self, inputs: str | Sequence[str], **options: Any) -> Any:
        """`encode` with the prompt named "document", unless another is given."""
        return self.encode(inputs, **with_prompt("document", options))

    def stream(
        self,
        windows: Iterable[Sequence[str]],
        *,
        normalize: bool = False,
        truncate_dim: int | None = None,
        progress: Progress = no_progress,
    ) -> Iterator[Array]:
        """Embeddings of windows of texts, one array each, the next window tokenised while the model works on one."""
        kept = self.kept_width(truncate_dim)

        def forward(tokens: Tensor, mask: Tensor) -> Tensor:
            embeddings = self.forward(tokens, mask)[:, :kept]
            return F.normalize(embeddings, dim=-1) if normalize else embeddings

        yield from self.encoder.stream(windows, forward, progress=progress)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """One padded batch, (batch, tokens) twice, to embeddings (batch, width)."""
        return self.behind_mix(self._mixed(tokens, mask).float())

    def behind_mix(self, embeddings: Tensor) -> Tensor:
        """What the mix gave, through heads and normalising where the model has them: (n, any width) -> (n, width)"""
        for head in self.heads:
            embeddings = head(embeddings)
        return F.normalize(embeddings, dim=-1) if self.normalize else embeddings

    def _mixed(self, tokens: Tensor, mask: Tensor) -> Tensor:
        if isinstance(self.mix, LayerWk):
            kept = without_last_token(mask)
            return self.mix.combine_tokens(self.encoder.read_states(tokens, mask, self.mix.layers, kept), kept)
        return self.mix.combine_poolings(self.encoder.read(tokens, mask, self.mix.layers, self.mix.poolings))

    def similarity(self, left: NDArray[Any] | Tensor, right: NDArray[Any] | Tensor) -> Tensor:
        """Every embedding of `left` against every one of `right`: (n, d), (m, d) -> (n, m)."""
        from sentence_transformers.util import SimilarityFunction

        compare: Callable[..., Tensor] = SimilarityFunction.to_similarity_fn(self.similarity_fn_name)
        return compare(left, right)

    def similarity_pairwise(self, left: NDArray[Any] | Tensor, right: NDArray[Any] | Tensor) -> Tensor:
        """Each embedding of `left` against the one of `right` in its row: (n, d), (n, d) -> (n,)."""
        from sentence_transformers.util import SimilarityFunction

        compare: Callable[..., Tensor] = SimilarityFunction.to_similarity_pairwise_fn(self.similarity_fn_name)
        return compare(left, right)

    def to_sentence_transformer(self) -> "SentenceTransformer":
        """A SentenceTransformer of its own weights, with no more blocks than the mix needs."""
        from layerwise.model.save import to_sentence_transformer

        return to_sentence_transformer(self)

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        extra: Callable[[Path], object] | None = None,
    ) -> None:
        """Write a sentence-transformers folder, whole or not at all.

        Set, weight and single-layer mixes are written with native modules, so that plain
        `SentenceTransformer(folder)` loads them. A folder that is not empty is refused unless `overwrite`.
        `extra` is called with the folder while it is built beside its place, to write more files into it.
        """
        from layerwise.model.save import save

        save(self, folder, overwrite=overwrite, extra=extra)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload as `SentenceTransformer.push_to_hub` does, with its options; gives the commit's address."""
        from layerwise.model.save import push_to_hub

        return push_to_hub(self, repo_id, **options)

    def prompt(self, name: str | None = None, prompt: str | None = None) -> str:
        """The text to put before a sentence: a prompt itself, a named one, or the default."""
        return prompt_text(self.prompts, self.default_prompt_name if name is None else name, prompt)

    def kept_width(self, truncate_dim: int | None) -> int:
        """How long an embedding is after truncation."""
        if truncate_dim is None:
            return self.width
        if not 1 <= truncate_dim <= self.width:
            raise InputError(f"truncate_dim {truncate_dim} is not possible: embeddings have {self.width} dimensions")
        return truncate_dim

    def __repr__(self) -> str:
        return f"LayerModel({self.encoder.name!r}, {str(self.mix)!r}, width={self.width})"
