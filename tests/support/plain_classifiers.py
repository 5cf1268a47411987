"""SentEval's protocol as plain scikit-learn loops, and rows whose classes can be told."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold


def plain_kfold(features, labels, *, folds: int = 10, inner: int = 10, seed: int = 1111):
    """SentEval's nested folds by scikit-learn alone: accuracy, C of every fold, predictions."""
    cs = [2**t for t in range(-2, 4)]
    scores, chosen, predicted = [], [], np.empty_like(labels)
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(features, labels):
        model = plain_choice(features[train], labels[train], cs, inner, seed)
        scores.append(model.score(features[test], labels[test]))
        chosen.append(model.C)
        predicted[test] = model.predict(features[test])
    return float(np.mean(scores)), chosen, predicted


def plain_train_test(features, labels, splits, *, inner: int = 10, seed: int = 1111):
    """Accuracy, C, predictions."""
    train, test = splits["train"], splits["test"]
    model = plain_choice(features[train], labels[train], [2**t for t in range(-1, 6)], inner, seed)
    return model.score(features[test], labels[test]), model.C, model.predict(features[test])


def plain_train_dev_test(features, labels, splits):
    """Accuracy, C."""
    models = [plain_fit(features[splits["train"]], labels[splits["train"]], 2**t) for t in range(-2, 4)]
    dev = [round(100 * model.score(features[splits["dev"]], labels[splits["dev"]]), 2) for model in models]
    best = models[int(np.argmax(dev))]
    return best.score(features[splits["test"]], labels[splits["test"]]), best.C


def plain_choice(features, labels, cs, inner: int, seed: int):
    """The regression with the best C, on all of these rows."""
    means = []
    for c in cs:
        folds = StratifiedKFold(inner, shuffle=True, random_state=seed).split(features, labels)
        scores = [plain_fit(features[a], labels[a], c).score(features[b], labels[b]) for a, b in folds]
        means.append(round(100 * np.mean(scores), 2))
    return plain_fit(features, labels, cs[int(np.argmax(means))])


def plain_fit(features, labels, c: float):
    return LogisticRegression(C=c, max_iter=1000).fit(features, labels)


def planted(rows: int = 300, classes: int = 2, width: int = 12, noise: float = 1.0, seed: int = 0):
    """Features that tell the classes apart, not wholly."""
    random = np.random.default_rng(seed)
    labels = random.integers(classes, size=rows)
    centres = random.normal(size=(classes, width)) / 2
    return (centres[labels] + noise * random.normal(size=(rows, width))).astype(np.float32), labels


def saga(features, labels, *, seed=0, **options):
    """BERT-LC's regression by scikit-learn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the protocol stops after 200 epochs
        settings = {"solver": "saga", "C": 10, "tol": 0.01, "max_iter": 200, "random_state": seed} | options
        return LogisticRegression(**settings).fit(features, labels)
