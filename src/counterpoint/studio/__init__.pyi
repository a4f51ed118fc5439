from .app import MODELS as MODELS
from .app import create_app as create_app
from .database import Database as Database
from .database import open_database as open_database
from .security import Guard as Guard
from .security import kept_key as kept_key
from .serving import is_loopback as is_loopback
from .serving import serve as serve
