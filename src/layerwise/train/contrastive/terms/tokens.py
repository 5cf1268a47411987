"""Terms that read tokens: masked language modelling, and DiffCSE's conditional discriminator."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from layerwise.encoder import LayerEncoder, TappedLayers, find_model
from layerwise.errors import InputError, ModelError
from layerwise.muted import quiet
from layerwise.objectives import mask_tokens, masked_language_loss, replaced_token_loss
from layerwise.train.contrastive.terms.base import TERMS, Share, Step, Term, TermContext, TermSettings
from layerwise.train.loop.settings import Positive


@TERMS.register("mlm")
class MaskedLanguageSettings(TermSettings):
    """Masked language modelling of the anchors as an auxiliary term (SimCSE: weight 0.1).

    Attributes:
        share: Share of the tokens that are chosen; 80 % of them become the mask token, 10 % another one, 10 % stay.
    """

    name: Literal["mlm"] = "mlm"
    reads_tokens: ClassVar[bool] = True
    weight: Positive = 0.1
    share: Share = 0.15

    def build(self, context: TermContext) -> "MaskedLanguage":
        """Build the term with the encoder's language modelling head."""
        return MaskedLanguage(self, context)


class MaskedLanguage(Term):
    """The trained encoder with its language modelling head."""

    def __init__(self, settings: MaskedLanguageSettings, context: TermContext) -> None:
        super().__init__()
        self.share = settings.share
        self.masker = TokenMasker.of(context.encoder)
        model = load_masked_language_model(str(context.encoder.folder.encoder), context.encoder)
        setattr(model, model.base_model_prefix, context.encoder.model)
        model.tie_weights()
        children = dict(model.named_children())
        children.pop(model.base_model_prefix)
        self.heads = nn.ModuleDict(children)
        self._model = (model,)  # not a submodule, as its encoder is the student's

    def forward(self, step: Step) -> Tensor:
        """Compute the loss on the anchors' masked tokens."""
        tokens, mask = step.local.tokens[0], step.local.mask[0]
        masked, labels = self.masker.masked(tokens, mask, self.share)
        logits = self._model[0](input_ids=masked, attention_mask=mask).logits
        return masked_language_loss(logits, labels)


@TERMS.register("diffcse")
class DiffCseSettings(TermSettings):
    """DiffCSE's second half: from the embedding and a changed sentence, tell which tokens were replaced.

    Combine it with "info-nce". The discriminator starts as a copy of the encoder and is dropped after training.

    Attributes:
        share: Share of the tokens that are masked for the generator.
        generator: A masked language model that fills them in (the authors': a DistilBERT), frozen; without it the
            encoder itself as it was before training, if its folder has a language modelling head.
    """

    name: Literal["diffcse"] = "diffcse"
    reads_tokens: ClassVar[bool] = True
    weight: Positive = 0.005
    share: Share = 0.30
    generator: str = ""

    def build(self, context: TermContext) -> "DiffCse":
        """Build the term with its generator and discriminator."""
        return DiffCse(self, context)


class DiffCse(Term):
    """Replaced token detection by a discriminator with the embedding in place of its first token."""

    def __init__(self, settings: DiffCseSettings, context: TermContext) -> None:
        super().__init__()
        if context.width != context.encoder.width:
            raise InputError(
                f"objective 'diffcse' puts the embedding in a token's place: it must have {context.encoder.width} "
                f"numbers, not {context.width}; take a pooler and head that keep the width"
            )
        self.share = settings.share
        self.masker = TokenMasker.of(context.encoder)
        generator = load_masked_language_model(
            settings.generator or str(context.encoder.folder.encoder), context.encoder
        )
        self._generator = (generator.requires_grad_(False).eval(),)  # frozen: not in checkpoints
        self.discriminator = deepcopy(context.encoder.model)
        self._first_block = (_first_block(context.encoder, self.discriminator),)  # a tuple: it is a submodule already
        self.judge = nn.Linear(context.encoder.width, 1)
        generator_seed = torch.Generator().manual_seed(context.seed)
        nn.init.normal_(self.judge.weight, std=0.02, generator=generator_seed)
        nn.init.zeros_(self.judge.bias)

    def forward(self, step: Step) -> Tensor:
        """Compute the loss over the non-special tokens of all columns, conditioned on each row's embedding."""
        tokens, mask = step.local.tokens.flatten(0, 1), step.local.mask.flatten(0, 1)
        embeddings = step.local.embeddings.flatten(0, 1)
        masked, labels = self.masker.masked(tokens, mask, self.share, always=True)
        with torch.no_grad():
            guesses = self._generator[0](input_ids=masked, attention_mask=mask).logits.argmax(dim=-1)
        changed = torch.where(labels >= 0, guesses, tokens)
        with first_token_is(self._first_block[0], embeddings):
            states = self.discriminator(input_ids=changed, attention_mask=mask).last_hidden_state
        counted = mask.bool() & ~self.masker.special(tokens)
        return replaced_token_loss(self.judge(states).squeeze(-1), changed != tokens, counted)


@dataclass(frozen=True)
class TokenMasker:
    """Masks tokens with the vocabulary of a tokenizer."""

    mask_id: int
    vocabulary: int
    special_ids: tuple[int, ...]

    @classmethod
    def of(cls, encoder: LayerEncoder) -> "TokenMasker":
        """Build from the encoder's tokenizer, which must have a mask token."""
        tokenizer = encoder.tokenizer
        if tokenizer.mask_token_id is None:
            raise ModelError(f"{encoder.name}: its tokenizer has no mask token, which this objective needs")
        return cls(int(tokenizer.mask_token_id), len(tokenizer), tuple(map(int, tokenizer.all_special_ids)))

    def special(self, tokens: Tensor) -> Tensor:
        """Return which tokens are special, (b, t)."""
        return torch.isin(tokens, torch.tensor(self.special_ids, device=tokens.device))

    def masked(self, tokens: Tensor, mask: Tensor, share: float, *, always: bool = False) -> tuple[Tensor, Tensor]:
        """Return tokens with some masked, and labels, -100 at all other tokens."""
        rest = 0.0 if always else 0.1
        special = self.special(tokens) | (mask == 0)
        return mask_tokens(
            tokens,
            special,
            mask_id=self.mask_id,
            vocabulary=self.vocabulary,
            share=share,
            keep=rest,
            random=rest,
        )


def load_masked_language_model(name: str, encoder: LayerEncoder) -> Any:
    """Load a masked language model with the encoder's vocabulary; raise if it has no weights for its head."""
    from transformers import AutoModelForMaskedLM

    folder = find_model(name)
    try:
        with quiet():
            model, report = AutoModelForMaskedLM.from_pretrained(
                folder.encoder, output_loading_info=True, local_files_only=True, use_safetensors=True, dtype="float32"
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(
            f"{name}: cannot be loaded as a masked language model: {str(error).splitlines()[0]}"
        ) from error
    missing = sorted(key for key in report["missing_keys"] if not key.endswith("position_ids"))
    if missing:
        raise ModelError(
            f"{name}: has no masked language modelling head (its weights lack {missing[0]}); "
            f'choose an encoder that was saved with its head, give diffcse a generator = "..." that has one, or '
            f"remove this objective"
        )
    if int(model.config.vocab_size) < len(encoder.tokenizer):
        raise ModelError(
            f"{name}: has {model.config.vocab_size} tokens in its vocabulary, the encoder {len(encoder.tokenizer)}"
        )
    return model.to(encoder.device)


@contextmanager
def first_token_is(block: nn.Module, vectors: Tensor) -> Iterator[None]:
    """Replace the first token's states by `vectors` (b, width) in the first call of `block` inside the context."""
    calls = iter([True])

    def replace_first(_block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not next(calls, False):  # ALBERT calls one block many times
            return None
        states = args[0] if args else kwargs["hidden_states"]
        states = torch.cat([vectors.to(states.dtype).unsqueeze(1), states[:, 1:]], dim=1)
        return ((states, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": states})

    handle = block.register_forward_pre_hook(replace_first, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _first_block(encoder: LayerEncoder, copy: nn.Module) -> nn.Module:
    if not isinstance(encoder.reader, TappedLayers):
        raise ModelError(f"{encoder.name}: objective 'diffcse' could not find its transformer blocks")
    first = encoder.reader.blocks[0]
    name = next(name for name, module in encoder.model.named_modules() if module is first)
    return copy.get_submodule(name)
