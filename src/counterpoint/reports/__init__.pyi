from .figures.course import CoursePoint as CoursePoint, write_course as write_course
from .figures.line import draw_line as draw_line
from .formats import as_csv as as_csv, as_latex as as_latex, as_markdown as as_markdown
from .notices import Provenance as Provenance
from .page import (
    ReportOptions as ReportOptions,
    compare_page as compare_page,
    report_page as report_page,
    report_tables as report_tables,
    report_text as report_text,
)
