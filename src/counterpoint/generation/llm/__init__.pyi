from .method import ChatMethod as ChatMethod
from .model import ChatModel as ChatModel
