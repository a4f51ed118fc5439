from .answers import ChatAnswer as ChatAnswer, read_answer as read_answer
from .client import Client as Client
from .settings import (
    Endpoint as Endpoint,
    read_endpoint as read_endpoint,
    read_price as read_price,
)
