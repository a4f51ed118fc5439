from .batch import DownloadReport as DownloadReport
from .download import PassingError as PassingError, retry_after as retry_after
from .getting import get as get
from .sources import (
    Damage as Damage,
    Presence as Presence,
    Source as Source,
    catalogue as catalogue,
    damaged_files as damaged_files,
    data_root as data_root,
    needs as needs,
    presence as presence,
)
