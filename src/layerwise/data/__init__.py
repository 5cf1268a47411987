"""Data: the declaration of a task, its rows from files of any format, and where published rows are found.

A `Task` says where rows are and what they mean; `load_task` finds, fetches and reads them as `TaskRows`.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.data.catalog import add_task as add_task
    from layerwise.data.catalog import find_tasks as find_tasks
    from layerwise.data.catalog import known_tasks as known_tasks
    from layerwise.data.catalog import parse_tasks as parse_tasks
    from layerwise.data.catalog import read_task_file as read_task_file
    from layerwise.data.demo import demo_corpus as demo_corpus
    from layerwise.data.demo import demo_pairs as demo_pairs
    from layerwise.data.fetch import differences as differences
    from layerwise.data.fetch import fetch_task as fetch_task
    from layerwise.data.former import OBJECTIVE_KEYS as OBJECTIVE_KEYS
    from layerwise.data.labels import as_number as as_number
    from layerwise.data.labels import label_name as label_name
    from layerwise.data.labels import listed as listed
    from layerwise.data.locate import data_folder as data_folder
    from layerwise.data.locate import fetched_folder as fetched_folder
    from layerwise.data.locate import find_file as find_file
    from layerwise.data.locate import load_task as load_task
    from layerwise.data.locate import obtain as obtain
    from layerwise.data.rows import STDIN as STDIN
    from layerwise.data.rows import Row as Row
    from layerwise.data.rows import RowSource as RowSource
    from layerwise.data.rows import column_type as column_type
    from layerwise.data.rows import guess_format as guess_format
    from layerwise.data.rows import text_of as text_of
    from layerwise.data.rows import written_text_of as written_text_of
    from layerwise.data.task_rows import NoSubsetError as NoSubsetError
    from layerwise.data.task_rows import Rows as Rows
    from layerwise.data.task_rows import TaskRows as TaskRows
    from layerwise.data.task_rows import check_scale as check_scale
    from layerwise.data.task_rows import read_pairs as read_pairs
    from layerwise.data.task_rows import read_task as read_task
    from layerwise.data.task_rows import relevant_passages as relevant_passages
    from layerwise.data.tasks import KINDS as KINDS
    from layerwise.data.tasks import ROLES as ROLES
    from layerwise.data.tasks import SUITES as SUITES
    from layerwise.data.tasks import Source as Source
    from layerwise.data.tasks import Task as Task
    from layerwise.data.tasks import TaskKind as TaskKind
    from layerwise.data.tasks import repeated as repeated

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        **dict.fromkeys(("add_task", "find_tasks", "known_tasks", "parse_tasks", "read_task_file"), ".catalog"),
        **dict.fromkeys(("demo_corpus", "demo_pairs"), ".demo"),
        **dict.fromkeys(("differences", "fetch_task"), ".fetch"),
        "OBJECTIVE_KEYS": ".former",
        **dict.fromkeys(("as_number", "label_name", "listed"), ".labels"),
        **dict.fromkeys(("data_folder", "fetched_folder", "find_file", "load_task", "obtain"), ".locate"),
        **dict.fromkeys(
            ("STDIN", "Row", "RowSource", "column_type", "guess_format", "text_of", "written_text_of"), ".rows"
        ),
        **dict.fromkeys(
            ("NoSubsetError", "Rows", "TaskRows", "check_scale", "read_pairs", "read_task", "relevant_passages"),
            ".task_rows",
        ),
        **dict.fromkeys(("KINDS", "ROLES", "SUITES", "Source", "Task", "TaskKind", "repeated"), ".tasks"),
    },
)
