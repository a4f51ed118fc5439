from .answers import unread as unread
from .chat import ChatMethod as ChatMethod, ChatModel as ChatModel, note_costs as note_costs
