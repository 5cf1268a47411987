"""Terms that look at tokens: masked language modelling beside the contrast, and DiffCSE's conditional discriminator."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.encoder.folders import find_model
from layerwise.encoder.layer_encoder import LayerEncoder
from layerwise.encoder.taps import TappedLayers
from layerwise.errors import InputError, ModelError
from layerwise.muted import quiet
from layerwise.objectives import mask_tokens, masked_language_loss, replaced_token_loss
from layerwise.train.terms.base import TERMS, Place, Step, Term, TermSettings


@TERMS.register("mlm")
@dataclass(frozen=True, kw_only=True)
class MaskedLanguageSettings(TermSettings):
    """Masked language modelling of the anchors as an auxiliary term (SimCSE: weight 0.1).

    Attributes:
        share: Of the tokens that are chosen; 80 % of them become the mask token, 10 % another one, 10 % stay.
    """

    name = "mlm"
    tokens = True
    weight: float = 0.1
    share: float = 0.15

    def check(self) -> None:
        """Refuse settings that can't be."""
        _check_share(self.share, self.name)

    def build(self, place: Place) -> "MaskedLanguage":
        """The term with the encoder's own language modelling head."""
        return MaskedLanguage(self, place)


class MaskedLanguage(Term):
    """The encoder that is trained, under its own language modelling head."""

    def __init__(self, settings: MaskedLanguageSettings, place: Place) -> None:
        super().__init__()
        self.share = settings.share
        self.words = Words.of(place.encoder)
        model = load_masked_language_model(str(place.encoder.folder.encoder), place.encoder)
        setattr(model, model.base_model_prefix, place.encoder.model)
        model.tie_weights()
        children = dict(model.named_children())
        children.pop(model.base_model_prefix)
        self.heads = nn.ModuleDict(children)
        self._model = (model,)  # not a submodule: the encoder in it is the student's own

    def forward(self, step: Step) -> Tensor:
        """The loss on the anchors' masked tokens."""
        tokens, mask = step.own.tokens[0], step.own.mask[0]
        masked, labels = self.words.masked(tokens, mask, self.share)
        logits = self._model[0](input_ids=masked, attention_mask=mask).logits
        return masked_language_loss(logits, labels)


@TERMS.register("diffcse")
@dataclass(frozen=True, kw_only=True)
class DiffCseSettings(TermSettings):
    """DiffCSE's second half: from the embedding and a changed sentence, tell which tokens were replaced.

    Put it beside "info-nce". The discriminator starts as a copy of the encoder and is dropped after training.

    Attributes:
        share: Of the tokens that are masked for the generator.
        generator: A masked language model that fills them in (the authors': a DistilBERT), frozen; without it the
            encoder itself as it was before training, if its folder has a language modelling head.
    """

    name = "diffcse"
    tokens = True
    weight: float = 0.005
    share: float = 0.30
    generator: str = ""

    def check(self) -> None:
        """Refuse settings that can't be."""
        _check_share(self.share, self.name)

    def build(self, place: Place) -> "DiffCse":
        """The term with its generator and discriminator."""
        return DiffCse(self, place)


class DiffCse(Term):
    """Replaced token detection by a discriminator that reads the embedding in place of its first token."""

    def __init__(self, settings: DiffCseSettings, place: Place) -> None:
        super().__init__()
        if place.width != place.encoder.width:
            raise InputError(
                f"objective 'diffcse' puts the embedding in a token's place: it must have {place.encoder.width} "
                f"numbers, not {place.width}; take a pooler and head that keep the width"
            )
        self.share = settings.share
        self.words = Words.of(place.encoder)
        generator = load_masked_language_model(settings.generator or str(place.encoder.folder.encoder), place.encoder)
        self._generator = (generator.requires_grad_(False).eval(),)  # frozen: not in checkpoints
        self.discriminator = deepcopy(place.encoder.model)
        self._first_block = (_first_block(place.encoder, self.discriminator),)  # a submodule already, by another name
        self.judge = nn.Linear(place.encoder.width, 1)
        generator_seed = torch.Generator().manual_seed(place.seed)
        nn.init.normal_(self.judge.weight, std=0.02, generator=generator_seed)
        nn.init.zeros_(self.judge.bias)

    def forward(self, step: Step) -> Tensor:
        """The loss over all columns' tokens but special ones, conditioned on each row's embedding."""
        tokens, mask = step.own.tokens.flatten(0, 1), step.own.mask.flatten(0, 1)
        embeddings = step.own.embeddings.flatten(0, 1)
        masked, labels = self.words.masked(tokens, mask, self.share, always=True)
        with torch.no_grad():
            guesses = self._generator[0](input_ids=masked, attention_mask=mask).logits.argmax(dim=-1)
        changed = torch.where(labels >= 0, guesses, tokens)
        with first_token_is(self._first_block[0], embeddings):
            states = self.discriminator(input_ids=changed, attention_mask=mask).last_hidden_state
        kept = mask.bool() & ~self.words.special(tokens)
        return replaced_token_loss(self.judge(states).squeeze(-1), changed != tokens, kept)


@dataclass(frozen=True)
class Words:
    """What masking needs of a tokenizer."""

    mask_id: int
    vocabulary: int
    special_ids: tuple[int, ...]

    @classmethod
    def of(cls, encoder: LayerEncoder) -> "Words":
        """From the encoder's tokenizer, which must have a mask token."""
        tokenizer = encoder.tokenizer
        if tokenizer.mask_token_id is None:
            raise ModelError(f"{encoder.name}: its tokenizer has no mask token, so nothing can be masked")
        return cls(int(tokenizer.mask_token_id), len(tokenizer), tuple(map(int, tokenizer.all_special_ids)))

    def special(self, tokens: Tensor) -> Tensor:
        """Which tokens are special ones: (b, t)."""
        return torch.isin(tokens, torch.tensor(self.special_ids, device=tokens.device))

    def masked(self, tokens: Tensor, mask: Tensor, share: float, *, always: bool = False) -> tuple[Tensor, Tensor]:
        """Tokens with some masked, and labels, -100 where none was chosen."""
        kept = 0.0 if always else 0.1
        special = self.special(tokens) | (mask == 0)
        return mask_tokens(
            tokens,
            special,
            mask_id=self.mask_id,
            vocabulary=self.vocabulary,
            share=share,
            keep=kept,
            random=kept,
        )


def load_masked_language_model(name: str, encoder: LayerEncoder) -> Any:
    """A masked language model whose words are the encoder's; one whose head is not in the weights is refused."""
    from transformers import AutoModelForMaskedLM

    folder = find_model(name)
    try:
        with quiet():
            model, report = AutoModelForMaskedLM.from_pretrained(
                folder.encoder, output_loading_info=True, local_files_only=True, use_safetensors=True, dtype="float32"
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelError(f"{name}: can't be loaded as a masked language model: {str(error).splitlines()[0]}") from error
    missing = sorted(key for key in report["missing_keys"] if not key.endswith("position_ids"))
    if missing:
        raise ModelError(
            f"{name}: has no masked language modelling head (its weights lack {missing[0]}); "
            f'take an encoder that was saved with its head, give diffcse a generator = "..." that has one, or leave '
            f"this objective out"
        )
    if int(model.config.vocab_size) < len(encoder.tokenizer):
        raise ModelError(f"{name}: knows {model.config.vocab_size} words, the encoder {len(encoder.tokenizer)}")
    return model.to(encoder.device)


@contextmanager
def first_token_is(block: nn.Module, vectors: Tensor) -> Iterator[None]:
    """While open, the first time that `block` is called it reads `vectors` (b, width) as its first token's states."""
    calls = iter([True])

    def put(_block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not next(calls, False):  # ALBERT calls one block many times
            return None
        states = args[0] if args else kwargs["hidden_states"]
        states = torch.cat([vectors.to(states.dtype).unsqueeze(1), states[:, 1:]], dim=1)
        return ((states, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": states})

    handle = block.register_forward_pre_hook(put, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _first_block(encoder: LayerEncoder, copy: nn.Module) -> nn.Module:
    if not isinstance(encoder.reader, TappedLayers):
        raise ModelError(f"{encoder.name}: its blocks could not be found, which objective 'diffcse' needs")
    first = encoder.reader.blocks[0]
    name = next(name for name, module in encoder.model.named_modules() if module is first)
    return copy.get_submodule(name)


def _check_share(share: float, name: str) -> None:
    if not 0 < share < 1:
        raise InputError(f"objective {name!r}: share {share} is not between 0 and 1")
