"""Where models come from: a folder, or an id on the Hugging Face hub."""

from pathlib import Path


def resolve(source: str | Path) -> str:
    """Returns the absolute path of a folder, or a hub id as it is.

    Raises:
        FileNotFoundError: if ``source`` can only be a path and nothing is there.
    """
    name = str(source)
    path = Path(name).expanduser()
    if path.is_dir():
        return str(path.absolute())
    if path.is_file():
        raise FileNotFoundError(f"{name} is a file: give the folder that holds the model")
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name or not name.strip():
        raise FileNotFoundError(f"no folder {name!r}")
    return name
