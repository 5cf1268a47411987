"""The HTML report: everything that was measured of a model, or of two, on one self-contained page."""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.report.build import build_page as build_page
    from layerwise.report.build import command_line as command_line
    from layerwise.report.data import ModelResults as ModelResults
    from layerwise.report.data import ReportData as ReportData
    from layerwise.report.data import measure_model as measure_model
    from layerwise.report.data import measure_trainings as measure_trainings
    from layerwise.report.data import report_data as report_data
    from layerwise.report.page import Page as Page
    from layerwise.report.page import write_page as write_page

_HOMES = {
    ".build": ("build_page", "command_line"),
    ".data": ("ModelResults", "ReportData", "measure_model", "measure_trainings", "report_data"),
    ".page": ("Page", "write_page"),
}
__getattr__, __dir__, __all__ = door(__name__, {name: home for home, names in _HOMES.items() for name in names})
