from .baselines import SCORERS as SCORERS
from .baselines import TEXT_MODELS as TEXT_MODELS
from .baselines import BagOfWords as BagOfWords
from .baselines import Format as Format
from .baselines import Length as Length
from .baselines import by_pair as by_pair
