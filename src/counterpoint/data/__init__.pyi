from .answers import PassingError as PassingError, retry_after as retry_after
from .batch import DownloadReport as DownloadReport
from .files import (
    Damage as Damage,
    Presence as Presence,
    damaged_files as damaged_files,
    data_root as data_root,
    presence as presence,
)
from .getting import get as get
from .sources import Source as Source, catalogue as catalogue, needs as needs
