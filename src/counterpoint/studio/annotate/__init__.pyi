from .campaigns import (
    Order as Order,
    Settings as Settings,
    find_campaign as find_campaign,
    make_campaign as make_campaign,
    standings as standings,
)
from .exporting import answers_csv as answers_csv, export as export
from .human import human_run as human_run
from .material import Wanted as Wanted
from .outcomes import Outcome as Outcome, outcome_of as outcome_of
