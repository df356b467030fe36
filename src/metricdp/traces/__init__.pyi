from .history_remap import HistoryRemap
from .movement import Movement
from .raster import Raster
from .tracker import Tracker
from .whole_traces import smooth, track

__all__ = ["HistoryRemap", "Movement", "Raster", "Tracker", "smooth", "track"]
