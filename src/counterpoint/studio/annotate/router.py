"""The two routers that the studio mounts: annotators' pages at /a, the admin's at /campaigns."""

from __future__ import annotations

from counterpoint.studio.annotate.admin_pages import admin_router
from counterpoint.studio.annotate.annotator_pages import annotator_router

__all__ = ["admin_router", "annotator_router"]
