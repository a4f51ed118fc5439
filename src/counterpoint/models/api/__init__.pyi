from .answers import Answer as Answer
from .answers import read_answer as read_answer
from .client import Client as Client
from .client import Endpoint as Endpoint
from .client import Pause as Pause
from .client import read_endpoint as read_endpoint
from .client import read_price as read_price
