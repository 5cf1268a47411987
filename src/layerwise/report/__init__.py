"""The HTML report: everything that was measured of a model, or of two, on one self-contained page."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.report.build import build_page
    from layerwise.report.data import ModelResults, ReportData, measure_model, measure_trainings, report_data
    from layerwise.report.explained import explanation_html, write_explanation
    from layerwise.report.page import Page, command_line, write_page
    from layerwise.report.tasks import check_same_model, read_matrix
    from layerwise.report.views import measure_views

__getattr__, __dir__, __all__ = door(__name__, __file__)
