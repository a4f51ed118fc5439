from .answers import unread as unread
from .method import ChatMethod as ChatMethod
from .model import ChatModel as ChatModel
