from .loop import Trained as Trained
from .loop import train as train
from .reading import as_yaml as as_yaml
from .reading import check as check
from .reading import list_recipes as list_recipes
from .reading import load_recipe as load_recipe
from .reading import merged as merged
from .reading import recipe_text as recipe_text
