"""Work beside other work: on a GPU a second stream, elsewhere in its turn."""

from functools import lru_cache

import torch

from rankspace.devices import is_gpu


class Aside:
    """Launches that need what has been launched so far, and that something later waits for. Where the block of a
    `with` ends in an error they are waited for: a graph that is recorded meanwhile could not be ended otherwise."""

    def __init__(self, device: torch.device) -> None:
        self.stream = _stream(device) if is_gpu(device) else None

    def __enter__(self) -> "Aside":
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is not None:
            self.join()

    def start(self) -> "torch.cuda.StreamContext | _InTurn":
        """What is launched in this context waits for all that came before it, and nothing waits for it until `join`.

        The tensors it uses must outlive that.
        """
        if self.stream is None:
            return _InTurn()
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        return torch.cuda.stream(self.stream)

    def join(self) -> None:
        """All that comes after waits for what was started."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)


class _InTurn:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


@lru_cache(maxsize=16)
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
