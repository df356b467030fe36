"""Reports over time: a public model of how people move, and what past reports say about where somebody is now."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
