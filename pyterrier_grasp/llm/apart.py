"""Running an asyncio program from code that is not asynchronous, in a notebook too."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_apart(program: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in an event loop of its own, in a thread of its own, and wait for it.

    Args:
        program: Makes the coroutine.

    Raises:
        KeyboardInterrupt: On Ctrl-C, after the coroutine was cancelled and has ended. A second Ctrl-C does not wait for
            that.
    """
    outcome: dict[str, Any] = {}
    running: dict[str, Any] = {}
    started = threading.Event()

    async def main() -> T:
        running["loop"], running["task"] = asyncio.get_running_loop(), asyncio.current_task()
        started.set()
        return await program()

    def body() -> None:
        try:
            outcome["value"] = asyncio.run(main())
        except BaseException as error:  # handed to the thread that waits
            outcome["error"] = error
        finally:
            started.set()

    thread = threading.Thread(target=body, name="chat requests", daemon=True)
    thread.start()
    try:
        _wait(thread)
    except KeyboardInterrupt:
        started.wait()
        if "task" in running:
            # the loop may have ended by itself in the meantime
            with contextlib.suppress(RuntimeError):
                running["loop"].call_soon_threadsafe(running["task"].cancel)
        _wait(thread)
        raise
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


def _wait(thread: threading.Thread) -> None:
    while thread.is_alive():
        # without a limit, some systems would not notice Ctrl-C
        thread.join(0.5)
