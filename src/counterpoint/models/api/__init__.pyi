from .client import Client as Client
from .endpoint import (
    ChatAnswer as ChatAnswer,
    Endpoint as Endpoint,
    read_answer as read_answer,
    read_endpoint as read_endpoint,
    read_price as read_price,
)
