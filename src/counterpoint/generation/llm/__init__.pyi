from .method import LanguageModelMethod as LanguageModelMethod
from .model import LanguageModel as LanguageModel
