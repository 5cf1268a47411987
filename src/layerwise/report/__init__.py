"""The HTML report: everything that was measured of a model, or of two, on one self-contained page."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.report.build import build_page, command_line
    from layerwise.report.data import ModelResults, ReportData, measure_model, measure_trainings, report_data
    from layerwise.report.page import Page, write_page
    from layerwise.report.views import measure_views

__getattr__, __dir__, __all__ = door(__name__, __file__)
