from .formats import as_csv as as_csv
from .formats import as_latex as as_latex
from .formats import as_markdown as as_markdown
from .notices import Made as Made
from .page import Options as Options
from .page import compare_page as compare_page
from .page import report_page as report_page
from .page import report_tables as report_tables
