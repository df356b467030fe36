from .reading import MechanismFile, content_hash, load, read_file
from .writing import save

__all__ = ["MechanismFile", "content_hash", "load", "read_file", "save"]
