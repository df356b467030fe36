"""The mechanism file (`.mdp`): archive, header, writing, and one reader for each format number."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
