"""The distinct requests among many, with their images and cache keys."""

import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tqdm.auto import tqdm

from pyterrier_grasp.llm.images import EncodedImage, data_url
from pyterrier_grasp.llm.request import ChatRequest
from pyterrier_grasp.llm.structured import AskingSettings, cache_key

_AT_ONCE = 256


class KeyedRequest(NamedTuple):
    """A request with its cache key and encoded images."""

    key: str
    request: ChatRequest
    images: tuple[EncodedImage, ...]


def encode(request: ChatRequest) -> tuple[EncodedImage, ...]:
    """The images of a request, encoded.

    Raises:
        OSError, ValueError: If one cannot be read; it names the file.
    """
    return tuple(data_url(path) for path in request.images)


def keyed(
    settings: AskingSettings, requests: Sequence[ChatRequest], desc: str, verbose: bool
) -> Iterator[KeyedRequest]:
    """Each distinct request; those with images that cannot be read are left out, with a warning.

    Args:
        settings: Model and sampling, which are part of the keys.
        requests: Any number.
        desc: Words before the progress bar, which counts images read.
        verbose: Whether to show it.
    """
    seen: set[str] = set()
    broken: list[str] = []
    shown = verbose and any(request.images for request in requests)
    with ThreadPoolExecutor() as pool, tqdm(total=len(requests), desc=f"{desc}: images", disable=not shown) as bar:
        for start in range(0, len(requests), _AT_ONCE):
            part = requests[start : start + _AT_ONCE]
            several = pool.map if any(request.images for request in part) else map
            for request, images in zip(part, several(_encoded_or_not, part), strict=True):
                bar.update()
                if isinstance(images, Exception):
                    broken.append(str(images))
                    continue
                key = cache_key(settings, request, images)
                if key not in seen:
                    seen.add(key)
                    yield KeyedRequest(key, request, images)
    if broken:
        warnings.warn(f"{len(broken):,} requests have images that cannot be read: {broken[:3]}", stacklevel=3)


def _encoded_or_not(request: ChatRequest) -> tuple[EncodedImage, ...] | Exception:
    try:
        return encode(request)
    except (OSError, ValueError) as error:
        return error
