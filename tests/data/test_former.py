"""Task files of the former format of training: one line that shows what to write instead."""

import re

import pytest

from layerwise.data import read_task_file
from layerwise.errors import InputError

TASK = '[[task]]\nname = "same"\nfile = "same.csv"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'kind = "classification"\ncolumns = ["a", "b"]\nlabel = "x"',
            'columns = ["a", "b"] with label = "x" is now written columns = { left = "a", right = "b", label = "x" }',
        ),
        (
            'kind = "classification"\ncolumns = ["text"]',
            'columns = ["text"] is now written columns = { left = "text" }',
        ),
        ('kind = "classification"\nlabel = "x"', 'label = "x" is now written columns = { label = "x" }'),
        (
            'kind = "classification"\nsplit_column = "part"\ncolumns = { left = "a" }',
            'columns = { left = "a" } with split_column = "part" is now written columns = { left = "a", split = "part',
        ),
        (
            'kind = "pairs"\ncolumns = { left = "a", right = "b" }',
            'kind = "pairs" is now written kind = "classification", with columns = { left = ..., right = ... }',
        ),
        (
            'kind = "similarity"',
            'kind = "similarity" is now written kind = "sts", whose metric is "spearman" unless metric = "pearson" is',
        ),
        (
            'kind = "similarity"\ncolumns = ["a", "b"]',
            'columns = ["a", "b"] is now written columns = { left = "a", right = "b", label = "label" }; kind = "simil',
        ),
        (
            'kind = "sts"\nhead = "cosine"',
            'head = "cosine" is now written in an [[objective]] table of the recipe, with task = "same"',
        ),
        (
            'kind = "sts"\nweight = 0.3\nmax_length = 64',
            'weight = 0.3, max_length = 64 are now written in an [[objective]] table of the recipe, with task = "same"',
        ),
    ],
)
def test_the_new_line_is_shown(tmp_path, text, message):
    (tmp_path / "tasks.toml").write_text(TASK + text)
    with pytest.raises(InputError, match=re.escape(f"tasks.toml: task 'same': {message}")) as error:
        read_task_file(tmp_path / "tasks.toml")
    assert "\n" not in str(error.value)
