"""The bodies of requests and responses, as the OpenAPI schema shows them."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(max_length=500)]
_Token = Annotated[int, Field(ge=0, lt=2**31)]
_Tokens = Annotated[list[_Token], Field(min_length=1)]
_Texts = Annotated[list[str], Field(min_length=1)]
_TokenLists = Annotated[list[_Tokens], Field(min_length=1)]
_Pair = tuple[str, str]
INPUT = "a text, a list of texts, a list of token numbers, or a list of such lists"


class Request(BaseModel):
    """Common fields of requests. Types are not coerced, and unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    expected: ClassVar[dict[str, str]] = {}  # describes fields of union types in errors

    model: Name | None = Field(None, description="The name of a model, as in /v1/models; the first without it.")


class Embedding(Request):
    """How texts become embeddings."""

    layers: Annotated[str, Field(max_length=2000)] | None = Field(
        None,
        description="A mix or view, such as '1,6 @ mean', 'last-4' or '5 @ cls', instead of the model's own; "
        "'all' gives every layer's vector.",
    )
    pooling: Name | None = Field(None, description="The token pooling where `layers` names none, such as 'cls'.")
    prompt_name: Name | None = Field(None, description="One of the model's prompts, put before each text.")
    truncate: bool = Field(False, description="Cut texts that are too long instead of refusing them.")


class EmbeddingsRequest(Embedding):
    """OpenAI's request, and which layers."""

    expected: ClassVar[dict[str, str]] = {"input": INPUT}

    input: str | _Texts | _Tokens | _TokenLists = Field(description=INPUT)
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1, lt=2**31)] | None = Field(None, description="Keep the first so many.")
    normalize: bool | None = Field(
        None, description="Make every embedding's length 1; without it, where it was 1 before dimensions were dropped."
    )
    user: str | None = Field(None, description="Taken for compatibility and not used.")


class SimilarityRequest(Embedding):
    """Pairs of texts to compare."""

    pairs: Annotated[list[_Pair], Field(min_length=1)] = Field(description="Pairs of texts.")


class PredictRequest(Request):
    """Texts, or pairs of texts, for a task of the model."""

    expected: ClassVar[dict[str, str]] = {"input": "a list of texts, or of pairs of texts"}

    input: _Texts | Annotated[list[_Pair], Field(min_length=1)]
    task: Name | None = Field(None, description="One of the model's tasks; not needed where there is one.")
    truncate: bool = Field(False, description="Cut texts that are too long instead of refusing them.")


class SearchRequest(BaseModel):
    """A text to search an index for."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    expected: ClassVar[dict[str, str]] = {"input": "a text or a list of texts"}

    input: str | _Texts = Field(description="A text or a list of texts.")
    index: Name | None = Field(None, description="The name of an index; not needed where there is one.")
    top_k: Annotated[int, Field(ge=1, le=1000)] = 10
    truncate: bool = Field(False, description="Cut texts that are too long instead of refusing them.")


class Usage(BaseModel):
    """How many tokens the model saw."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingItem(BaseModel):
    """One embedding; with `layers: "all"` one of each layer of each text."""

    object: Literal["embedding"]
    index: int = Field(description="The number of the text, from 0.")
    embedding: list[float] | str = Field(description="Numbers, or little-endian float32 as base64.")
    layer: int | None = None


class EmbeddingsResponse(BaseModel):
    """Embeddings in the order of the texts."""

    object: Literal["list"]
    data: list[EmbeddingItem]
    model: str
    usage: Usage


class SimilarityItem(BaseModel):
    """How similar the texts of a pair are; with `layers: "all"` in each layer."""

    object: Literal["similarity"]
    index: int
    similarity: float | None = None
    layers: list[float] | None = None


class SimilarityResponse(BaseModel):
    """Similarities in the order of the pairs."""

    object: Literal["list"]
    data: list[SimilarityItem]
    model: str
    similarity: str = Field(description="The similarity of the model: cosine, dot, euclidean or manhattan.")
    usage: Usage


class PredictionItem(BaseModel):
    """The likeliest class and the probability of each, or a number."""

    object: Literal["prediction"]
    index: int
    label: str | None = None
    probabilities: dict[str, float] | None = None
    number: float | None = None


class PredictResponse(BaseModel):
    """Predictions in the order of the input."""

    object: Literal["list"]
    data: list[PredictionItem]
    model: str
    task: str
    usage: Usage


class Hit(BaseModel):
    """A row of the index, with the columns that were carried along."""

    row: int
    score: float
    columns: dict[str, Any]


class SearchItem(BaseModel):
    """The nearest rows of one text, best first."""

    object: Literal["search_result"]
    index: int
    hits: list[Hit]


class SearchResponse(BaseModel):
    """Results in the order of the texts."""

    object: Literal["list"]
    data: list[SearchItem]
    model: str
    index: str
    usage: Usage


class ModelItem(BaseModel):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    layers: int = Field(description="The number of the last layer.")
    width: int
    max_tokens: int
    mix: str
    prompts: list[str]
    tasks: list[str]


class ModelsResponse(BaseModel):
    """The models that are served."""

    object: Literal["list"]
    data: list[ModelItem]
    indexes: list[str]


class LayersResponse(BaseModel):
    """What `layers` may say for a model."""

    model: str
    layers: list[int]
    width: int
    mix: str
    poolings: list[str]
    prompt_templates: list[str] = Field(description='For poolings such as "last in NAME".')


class Status(BaseModel):
    """Whether the server is alive, or ready."""

    status: str
    reason: str | None = None


class ErrorFacts(BaseModel):
    """What is wrong and what to do."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorResponse(BaseModel):
    """An error in OpenAI's form."""

    error: ErrorFacts
