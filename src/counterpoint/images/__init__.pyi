from .pictures import MAX_RATIO as MAX_RATIO
from .pictures import PARQUET as PARQUET
from .pictures import SHUFFLE as SHUFFLE
from .pictures import WORLD as WORLD
from .pictures import Picture as Picture
from .pictures import decode as decode
from .shuffles import PIECES as PIECES
