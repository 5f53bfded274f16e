"""Write docs/recipes.md from the schema and the shipped recipes: python docs/make_recipes.py"""

from pathlib import Path

from histolumen.config import recipe_names, recipe_text
from histolumen.config.reference import reference

HEAD = """# Recipes and their keys

A recipe is a YAML file of four blocks. `histolumen recipes show NAME` prints one; `--full` adds every key. Save it,
edit it, and pass the file to `histolumen train`. `--set block.key=value` changes one key on the command line.

| recipe | description |
|---|---|
"""


def page() -> str:
    """The text of docs/recipes.md."""
    rows = [f"| `{name}` | {recipe_text(name).splitlines()[0].removeprefix('#').strip()} |" for name in recipe_names()]
    return HEAD + "\n".join(rows) + "\n\n" + reference() + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("recipes.md").write_text(page(), encoding="utf-8")
