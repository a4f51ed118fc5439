from .grids import Sweep as Sweep, sweep as sweep
from .leaks import Leak as Leak, find_leaks as find_leaks, without_leaks as without_leaks
from .logs import Display as Display
from .loop import Trained as Trained, train as train
from .losses.terms import Features as Features, reads as reads
from .matching import (
    Matched as Matched,
    MatchingSettings as MatchingSettings,
    match_at_test_time as match_at_test_time,
)
from .reading import (
    as_yaml as as_yaml,
    check as check,
    list_recipes as list_recipes,
    load_recipe as load_recipe,
    merged as merged,
    recipe_text as recipe_text,
)
