"""Data: the declaration of a task, its rows from files of any format, and where published rows are found.

A `Task` says where rows are and what they mean; `load_task` finds, fetches and reads them as `TaskRows`.
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.data.catalog import add_task, find_tasks, known_tasks, parse_tasks, read_task_file
    from layerwise.data.demo import demo_corpus, demo_pairs
    from layerwise.data.fetch import differences, fetch_task
    from layerwise.data.in_memory import are_texts, tasks_of
    from layerwise.data.kinds import KINDS, Kind, redraw_of
    from layerwise.data.known_rows import KnownRows, RowFacts
    from layerwise.data.labels import as_number, label_name, listed
    from layerwise.data.locate import data_folder, fetched_folder, find_file, load_task, obtain
    from layerwise.data.pairs import demo_rows, load_pairs, pairs_in_memory, read_pairs
    from layerwise.data.plain_files import file_task, is_pair_file
    from layerwise.data.rows import (
        STDIN,
        Row,
        RowSource,
        arrow_schema,
        column_names,
        column_type,
        guess_format,
        lines_of,
        text_of,
        written_text_of,
    )
    from layerwise.data.task_rows import NoSubsetError, Rows, TaskRows, check_scale, read_task, relevant_passages
    from layerwise.data.tasks import GROUPS, ROLES, SUITES, Source, Task, TextFile, repeated

__getattr__, __dir__, __all__ = door(__name__, __file__)
