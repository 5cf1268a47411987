"""Contrastive training as a job of the loop: text to batches, an encoder to a student, the student to a model."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from layerwise.data import Task, data_folder, find_tasks
from layerwise.encoder import Array, LayerEncoder
from layerwise.errors import InputError
from layerwise.evaluate import Evaluation
from layerwise.mixes import Mix, parse_mix
from layerwise.model import LayerModel
from layerwise.objectives import rank, world_size
from layerwise.train.contrastive.batches import AnyTokenizer, Batches, EndlessBatches
from layerwise.train.contrastive.blocks import KeptBlocks, kept_blocks, sample_evenly, search_blocks
from layerwise.train.contrastive.corpus import AnyCorpus, Corpus, StreamedCorpus, equal_to_evaluation
from layerwise.train.contrastive.decoders import attend_both_ways, merge_lora
from layerwise.train.contrastive.dev import DevScore
from layerwise.train.contrastive.frozen import MAX_BYTES, Frozen, FrozenCopy, FrozenViews, bytes_needed
from layerwise.train.contrastive.load import load_corpus
from layerwise.train.contrastive.prompted import TwoPrompts, prompt_of, prompt_tokenizer, training_tokenizer
from layerwise.train.contrastive.settings import RECIPES, Recipe
from layerwise.train.contrastive.student import BATCH, Student, build_student, prompts_of
from layerwise.train.contrastive.teachers import rotated, teachers_vectors
from layerwise.train.contrastive.trainer import ContrastiveTrainer
from layerwise.train.loop.graphs import GraphedEncode, use_graphs
from layerwise.train.loop.job import Job, Training
from layerwise.train.loop.scoring import check_unseen, score_model, tasks_to_score
from layerwise.train.loop.summary import Result, summarise
from layerwise.train.recipes.format import RecipeFormat

log = logging.getLogger(__name__)
SEARCHED_TEXTS = 256  # sentences that a search for blocks compares
ROTATED_TEXTS = 8192  # sentences used to rotate a teacher's vectors to the student's


class ContrastiveJob(Job[Recipe, Student, LayerModel]):
    """A contrastive training.

    >>> job = ContrastiveJob(load_recipe("small-simcse"), encoder="my-encoder", data="data")  # doctest: +SKIP
    >>> train(job, "run").model.encode(["A sentence."])  # doctest: +SKIP

    Args:
        recipe: The settings.
        encoder: A folder or hub name instead of the recipe's; an encoder object is trained in place.
        corpus: Instead of the recipe's text.
        data: The data folder, for the text by name and for dev and test tasks.
    """

    formats: ClassVar[RecipeFormat[Recipe]] = RECIPES

    def __init__(
        self,
        recipe: Recipe,
        *,
        encoder: LayerEncoder | str | None = None,
        corpus: AnyCorpus | None = None,
        data: str | None = None,
    ) -> None:
        super().__init__(recipe, encoder=encoder)
        self.data = data
        self._corpus = corpus
        self.corpus: AnyCorpus
        self.dev: DevScore | None = None
        self.tests: Sequence[Task] = ()
        self.taught_by: list[dict[str, str]] = []
        self.blocks: KeptBlocks | None = None

    def read_data(self) -> None:
        """Read the text and the dev pairs; a missing data folder raises now rather than after training."""
        data_folder(self.data)
        self.corpus = load_corpus(self.recipe.data, self.data) if self._corpus is None else self._corpus
        if isinstance(self.corpus, StreamedCorpus) and self.recipe.train.steps is None:
            raise InputError("[data] stream: the number of steps of an epoch is unknown; give steps under [train]")
        recipe = self.recipe
        self.dev = DevScore(recipe.dev, self.data, recipe.exits) if recipe.dev.task else None

    def prepare_test(self) -> None:
        """Find the test tasks; raise if they would be scored on dev rows."""
        self.tests = tasks_to_score(self.recipe.dev.test, self.data)
        check_unseen(self.recipe.dev.task, self.tests)

    def load_encoder(self, device: str | None = None) -> LayerEncoder:
        """Load the encoder, or the blocks of it that the recipe selects."""
        encoder = super().load_encoder(device)
        if self.recipe.model.attention:
            attend_both_ways(encoder)
        if self.recipe.model.blocks == "":
            return encoder
        if self.blocks is None:
            self.blocks = self._choose_blocks(encoder, self.recipe.model.blocks)
            log.info("blocks %s of %d, %s", self.blocks.kept, self.blocks.of, self.blocks.chosen)
        return encoder.with_blocks(self.blocks.kept)

    @property
    def digest(self) -> str:
        """The digest of the corpus."""
        return self.corpus.digest

    @property
    def metric(self) -> str | None:
        """The dev task's metric."""
        return self.dev.metric if self.dev else None

    def build(self, encoder: LayerEncoder, *, seed: int) -> Training[Student]:
        """Build student, batches and dev score; compute the frozen copy's views."""
        recipe, dev = self.recipe, self.dev
        if recipe.data.max_length > encoder.max_length:
            raise InputError(
                f"[data] max_length is {recipe.data.max_length}; "
                f"{encoder.name} takes at most {encoder.max_length} tokens"
            )
        teachers = self._teachers(encoder)
        student = build_student(recipe, encoder, seed=seed, teacher_width=sum(teacher.width for teacher in teachers))
        frozen = self._teacher_views(teachers, student) if teachers else self._frozen(encoder)
        if isinstance(frozen, FrozenCopy) and not prompt_of(student.pooler).is_plain:
            raise InputError(
                "the frozen copy would read the pooler's prompt; leave dropout = true out of the objective, and give "
                "text that fits into memory, so that its views are computed beforehand"
            )
        batches = self._batches(encoder, student.pooler, seed, for_copy=isinstance(frozen, FrozenCopy))
        if rank() == 0:
            log.info("training on %s (%s), device %s", self.corpus.source, self.corpus.counts, encoder.device)
        columns = max(recipe.student_columns, recipe.copies)
        return Training(
            student=student,
            batches=batches,
            scorer=(lambda: dev(self._to_model(student))) if dev else None,
            trainer=partial(
                ContrastiveTrainer,
                frozen=frozen,
                pull=recipe.pull,
                chunk=recipe.train.chunk,
                columns=columns,
                graphs=self._graphs(student, columns),
            ),
        )

    def data_facts(self, training: Training[Student]) -> dict[str, Any]:  # noqa: ARG002
        """Return facts about the text, and how many of its sentences occur in evaluation tasks."""
        tasks = [task.name for task in find_tasks(suites=["sts"])]
        return {
            "text": {"source": self.corpus.source, **asdict(self.corpus.counts)},
            **(
                {"teacher": self.taught_by[0] if len(self.taught_by) == 1 else self.taught_by} if self.taught_by else {}
            ),
            **({"blocks": asdict(self.blocks)} if self.blocks else {}),
            "text_equal_to_evaluation": equal_to_evaluation(self.corpus, tasks, self.data),
        }

    def score_facts(self, training: Training[Student], state: Any) -> dict[str, Any]:
        """Return the best dev score and its step, and the dev score of each trained exit."""
        if self.dev is None or state.best_metric is None:
            return {}
        facts = {"task": self.dev.name, "metric": self.dev.metric, "best": 100 * state.best_metric}
        facts["at_step"] = state.best_global_step
        if self.recipe.exits is not None:
            scores = self.dev.exit_scores(self._to_model(training.student))
            by_layer = {layer: {width: 100 * score for width, score in of.items()} for layer, of in scores.items()}
            facts["exits"] = {f"layer {layer}": of for layer, of in by_layer.items()}
        return {"dev": facts}

    def model(self, training: Training[Student], facts: Mapping[str, Any]) -> LayerModel:
        """Return the recipe's model with the record of its training text; LoRA is merged."""
        if self.recipe.model.lora:
            merge_lora(training.student.backbone)
        return self._to_model(training.student, training=dict(facts), fitted_on=(self.corpus.fitted_on,))

    def evaluate(self, model: LayerModel) -> Evaluation | None:
        """Score the model on the test tasks."""
        return score_model(model, self.tests, self.data) if self.tests else None

    def save(self, model: LayerModel, facts: Mapping[str, Any], folder: Path) -> None:
        """Save the model folder."""
        model.replaced(training=dict(facts)).save(folder, overwrite=True)

    def summary(self, results: Sequence[Result]) -> dict[str, Any]:
        """Summarise dev and test scores."""
        return summarise(results)

    def _to_model(self, student: Student, **options: Any) -> LayerModel:
        settings = self.recipe.model
        return student.to_model(inference=settings.inference, keep_head=settings.keep_head, **options)

    def _choose_blocks(self, encoder: LayerEncoder, blocks: int | str) -> KeptBlocks:
        """Return the recipe's blocks, or search for them on the first column of the text."""
        resolved = kept_blocks(blocks, encoder.depth)
        if isinstance(resolved, KeptBlocks):
            return resolved
        if not isinstance(self.corpus, Corpus):
            raise InputError(f"[model] blocks {blocks!r} are searched in text that is held; leave stream out")
        settings, texts = self.recipe.model, sample_evenly(self.corpus.columns[0], SEARCHED_TEXTS)
        mix = parse_mix(settings.inference or settings.pooler)
        mix = parse_mix("last @ mean") if mix.is_learned else mix
        teachers, frozen = self._teachers(encoder), self.recipe.frozen
        source = " and ".join(model["name"] for model in self.taught_by) or "the whole encoder"
        targets = teachers_vectors(teachers, frozen.weights, texts) if frozen and teachers else None
        return search_blocks(
            encoder,
            resolved,
            embed=lambda shorter: LayerModel(shorter, mix).encode(texts),
            teacher=LayerModel(encoder, mix).encode(texts) if targets is None else targets,
            source=f"{source}, {len(texts)} sentences",
        )

    def _teachers(self, encoder: LayerEncoder) -> list[LayerModel]:
        """Load the teacher models of an objective."""
        names = self.recipe.frozen.teachers if self.recipe.frozen else ()
        halves = encoder.device.type != "cpu" and self.recipe.train.precision == "bf16"
        options = {"device": str(encoder.device), "dtype": "bfloat16" if halves else "float32"}
        teachers = [LayerModel.load(name, **options) for name in names]
        self.taught_by = [
            {
                "name": Path(name).name,
                "mix": str(teacher.mix),
                "model": teacher.digest(),
                "saw": "; ".join(record.source for record in teacher.fitted_on) or "not recorded",
            }
            for name, teacher in zip(names, teachers, strict=True)
        ]
        return teachers

    def _teacher_views(self, teachers: Sequence[LayerModel], student: Student) -> FrozenViews:
        """Compute the teachers' embeddings of all texts, once."""
        corpus, width, frozen = self.corpus, sum(teacher.width for teacher in teachers), self.recipe.frozen
        if frozen is None or not isinstance(corpus, Corpus) or 4 * len(corpus) * width > MAX_BYTES:
            raise InputError(
                f"the teacher's embeddings must fit into memory ({MAX_BYTES >> 30} GiB), but the text is streamed or "
                f"too long; give less text by limit under [data]"
            )
        texts = corpus.columns[0]
        start = self._initial_embeddings(student, texts[:ROTATED_TEXTS]) if frozen.rotated else None
        vectors = teachers_vectors(teachers, frozen.weights, texts)
        if start is not None:
            vectors = rotated(vectors, start)
        return FrozenViews.of_vectors(vectors, student.encoder.device)

    def _initial_embeddings(self, student: Student, texts: Sequence[str]) -> Array:
        """Return the student's embeddings before training, at least as many as their width, to rotate a teacher's."""
        model = self._to_model(student)
        if len(texts) < model.width:
            raise InputError(
                f"objective 'distil': projection = \"rotation\" needs at least {model.width} sentences of text, as "
                f"many as the embeddings have numbers, but there are {len(texts)}; give more text, or "
                f'projection = "learned"'
            )
        return model.encode(list(texts))

    def _frozen(self, encoder: LayerEncoder) -> Frozen | None:
        """Return the frozen copy's views, precomputed if they fit into memory."""
        settings, corpus = self.recipe.frozen, self.corpus
        if settings is None:
            return None
        fits = isinstance(corpus, Corpus) and bytes_needed(encoder, len(corpus), settings) <= MAX_BYTES
        if settings.dropout or not fits or not isinstance(corpus, Corpus):
            log.info("the frozen copy runs at every step: its views cannot be held in memory")
            return FrozenCopy(encoder, settings)
        texts = corpus.columns[settings.column]
        return FrozenViews.of(encoder, texts, settings, max_length=self.recipe.data.max_length)

    def _batches(self, encoder: LayerEncoder, pooler: Mix, seed: int, *, for_copy: bool) -> Batches | EndlessBatches:
        recipe, corpus = self.recipe, self.corpus
        if corpus.rows is not None and corpus.rows < recipe.train.batch_size:
            log.warning(
                "batch_size is %d, but there are %d rows: each batch holds all of them",
                recipe.train.batch_size, corpus.rows,
            )  # fmt: skip
        if isinstance(corpus, Corpus) and not for_copy:
            corpus = replace(corpus, columns=corpus.columns[: recipe.student_columns])
        as_copies = corpus.width == 1 and not recipe.data.repetition and not recipe.model.second_prompt
        batches = Batches(
            corpus,
            self._tokenizer(encoder, pooler),
            batch_size=recipe.train.batch_size,
            copies=recipe.copies if as_copies else 1,
            repetition=recipe.data.repetition,
            pad_id=int(encoder.tokenizer.pad_token_id or 0),
            seed=seed,
            bucket=recipe.data.bucket,
            rank=rank(),
            world=world_size(),
        )
        return EndlessBatches(batches) if isinstance(corpus, StreamedCorpus) else batches

    def _tokenizer(self, encoder: LayerEncoder, pooler: Mix) -> AnyTokenizer:
        first, *second = prompts_of(self.recipe, pooler)
        length = self.recipe.data.max_length
        if not second:
            return training_tokenizer(encoder, first, max_length=length)
        return TwoPrompts(*(prompt_tokenizer(encoder, prompt, max_length=length) for prompt in (first, *second)))

    def _graphs(self, student: Student, columns: int) -> GraphedEncode | None:
        settings = self.recipe.train
        if not use_graphs(student, settings):
            return None
        student.use_graphs()
        rows = {BATCH: settings.batch_size * columns}
        return GraphedEncode(student, rows=rows, bf16=settings.precision == "bf16")
