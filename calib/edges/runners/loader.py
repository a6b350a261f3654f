"""ONNX Runtime as the diagnosis asks for it: any network, with or without optimizations."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from calib.edges.runners.ort import OrtRunner, Provider


@dataclass(frozen=True)
class OrtRuntime:
    """Loads networks into ONNX Runtime.

    Attributes:
        place: what to call them in messages.
        provider: where they run.
    """

    place: str = "network"
    provider: Provider = "cpu"

    def load(self, model: onnx.ModelProto, *, optimize: bool) -> OrtRunner:
        """Load a network.

        Raises:
            ModelError: ONNX Runtime does not accept it.
            MissingLibraryError: ONNX Runtime is not installed.
        """
        return OrtRunner(model, self.place, self.provider, optimize=optimize, share_memory=True)
