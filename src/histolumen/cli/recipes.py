"""`histolumen recipes`."""

from typing import Annotated

import typer

app = typer.Typer(help="List the shipped recipes, show one, or explain every key.", invoke_without_command=True)


@app.callback()
def list_recipes(context: typer.Context) -> None:
    """List the recipes that come with the package."""
    if context.invoked_subcommand is not None:
        return
    from histolumen.config import recipe_names, recipe_text

    for name in recipe_names():
        first_line = recipe_text(name).splitlines()[0].removeprefix("#").strip()
        typer.echo(f"{name:14} {first_line}")
    typer.echo("\nhistolumen recipes show NAME prints one; save it, edit it and pass the file to `train`.")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="Name of a recipe, or a YAML file.")],
    full: Annotated[
        bool, typer.Option("--full", help="Include the keys that the recipe leaves at their defaults.")
    ] = False,
) -> None:
    """Print a recipe."""
    from histolumen.config import load_config, recipe_text

    typer.echo(load_config(name).as_yaml() if full else recipe_text(name), nl=False)


@app.command()
def keys() -> None:
    """Print every key with its default and meaning (Markdown)."""
    from histolumen.config.reference import reference

    typer.echo(reference())
