"""What each person's reports add up to: budgets, the requests of a batch, and the SQLite file that holds them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
