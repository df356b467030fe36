"""The library's logger: INFO on stages, DEBUG on details, and never a coordinate."""

import logging

__all__ = ["LOG"]

LOG = logging.getLogger("metricdp")
# Silent unless the program that uses the library asks for its messages.
LOG.addHandler(logging.NullHandler())
