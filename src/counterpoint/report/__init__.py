"""Reports: runs as one page that can be sent, and their table for a paper.

    from counterpoint.report.page import report_page, compare_page

Nothing is imported here: the page needs Jinja2 and matplotlib, of the extra `studio`.
"""
