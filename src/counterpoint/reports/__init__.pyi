from .figures.curves import (
    CoursePoint as CoursePoint,
    draw_line as draw_line,
    write_course as write_course,
)
from .formats import as_csv as as_csv, as_latex as as_latex, as_markdown as as_markdown
from .page import (
    ReportOptions as ReportOptions,
    compare_page as compare_page,
    report_page as report_page,
    report_tables as report_tables,
    report_text as report_text,
)
from .provenance import Provenance as Provenance, told_of as told_of
