"""Image-retrieval datasets for ir_datasets and PyTerrier."""


def register() -> None:
    """Register the lazy dataset id patterns."""
