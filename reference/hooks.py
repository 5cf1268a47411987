"""What MkDocs calls while it builds the site (`hooks:` in mkdocs.yml).

The reference pages are not in docs/: they are generated from the commands, the models that validate files, and the
public names of the packages. Links to files of the repository outside docs/ become plain text, for the site has no copy
of those files.
"""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

from command_line import command_line_page
from formats import recipes_page, tasks_page
from python_names import ROOMS, room_page

_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#]*)(#[^)]*)?\)")
_FENCE = re.compile(r"(```.*?```)", re.DOTALL)


def pages() -> dict[str, str]:
    """Address inside docs/ -> the text of every generated page."""
    rooms = {f"reference/python/{name}.md": room_page(name) for name in ROOMS}
    formats = {"reference/recipes.md": recipes_page(), "reference/tasks.md": tasks_page()}
    return {"reference/command-line.md": command_line_page(), **formats, **rooms}


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    for address, text in pages().items():
        files.append(File.generated(config, address, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Links out of docs/ become text; what stands in a fence is left as it is."""
    folder, docs = (Path(config.docs_dir) / page.file.src_uri).parent, Path(config.docs_dir).resolve()

    def replaced(link: re.Match[str]) -> str:
        inside = (folder / link[2]).resolve().is_relative_to(docs)
        return link[0] if inside else link[1]

    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(replaced, part) for part in parts)
