from .app import (
    MODELS as MODELS,
    create_app as create_app,
    is_loopback as is_loopback,
    serve as serve,
)
from .database import Database as Database, open_database as open_database
from .security import Guard as Guard, kept_key as kept_key
