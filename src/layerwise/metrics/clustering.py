"""Clusters against classes: V-measure. On all rows it is scikit-learn's."""

import numpy as np

from layerwise.metrics.numbers import Numbers


def redraw_v_measure(clusters: Numbers, classes: Numbers, counts: Numbers) -> Numbers:
    """V-measure of fixed clusters on resamples: (rows,), (rows,), (draws, rows) -> (draws,)"""
    columns, rows = int(clusters.max()) + 1, int(classes.max()) + 1
    cells = classes.astype(np.intp) * columns + clusters.astype(np.intp)
    tables = (np.bincount(cells, weights=draw, minlength=rows * columns).astype(np.float64) for draw in counts)
    return np.array([_v_measure(table.reshape(rows, columns)) for table in tables])


def _v_measure(table: Numbers) -> float:
    """The harmonic mean of homogeneity and completeness of a table of classes by clusters."""
    shares = table / table.sum()
    joint, classes, clusters = (_entropy(part) for part in (shares, shares.sum(1), shares.sum(0)))
    mutual = classes + clusters - joint
    return float(2 * mutual / (classes + clusters)) if classes + clusters > 0 else 1.0


def _entropy(shares: Numbers) -> float:
    nonzero = shares[shares > 0]
    return float(-(nonzero * np.log(nonzero)).sum())
