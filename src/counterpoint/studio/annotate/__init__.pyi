from .campaigns import (
    CampaignDesign as CampaignDesign,
    Order as Order,
    find_campaign as find_campaign,
    make_campaign as make_campaign,
    standings as standings,
)
from .exporting import answers_csv as answers_csv, export as export
from .human import human_run as human_run
from .pages import admin_router as admin_router, annotator_router as annotator_router
from .results import (
    CampaignResults as CampaignResults,
    comparison as comparison,
    outcome_of as outcome_of,
)
from .sources import SourceSelection as SourceSelection
