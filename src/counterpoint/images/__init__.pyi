from .pictures import (
    MAX_RATIO as MAX_RATIO,
    PARQUET as PARQUET,
    SHUFFLE as SHUFFLE,
    WORLD as WORLD,
    Picture as Picture,
    decode as decode,
)
from .shuffles import PIECES as PIECES
