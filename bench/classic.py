"""Classic models on CPU beside onnxruntime: one thread, CPU time per call, one row and 1,000 rows.

    pip install scikit-learn skl2onnx onnxmltools xgboost-cpu lightgbm
    python bench/classic.py [name ...]

The models are trained on random data and exported with the tools' defaults, so most return maps (ZipMap).
"""

from __future__ import annotations

import statistics
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import lightgbm
import numpy as np
import onnxmltools
import onnxruntime
import xgboost
from onnx import helper
from onnxmltools.convert.common.data_types import FloatTensorType as FloatRows
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    GradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.svm import SVC

import hetero
from table import Table
from timing import medians

ROWS, FEATURES = 1000, 20
Feeds = dict[str, Any]


def logistic() -> Any:
    return LogisticRegression(max_iter=500)


def models() -> Iterator[tuple[str, Any, Feeds]]:
    """Name, model, inputs of `ROWS` rows."""
    rng = np.random.default_rng(0)
    x, y = make_classification(ROWS, FEATURES, n_informative=10, n_classes=3, random_state=0)
    x = x.astype(np.float32)
    members = [("lr", logistic()), ("rf", RandomForestClassifier(10)), ("nb", GaussianNB())]
    for name, estimator in (
        ("logistic regression", logistic()),
        ("scaler, logistic regression", make_pipeline(StandardScaler(), logistic())),
        ("support vectors", SVC(probability=True)),
        ("random forest", RandomForestClassifier(50, max_depth=8)),
        ("random forest, regression", RandomForestRegressor(50, max_depth=8)),
        ("gradient boosting", GradientBoostingClassifier(n_estimators=30)),
        ("neural network", MLPClassifier((50, 30), max_iter=50)),
        ("Gaussian Bayes", GaussianNB()),
        ("nearest neighbors", KNeighborsClassifier(5)),
        ("stacking", StackingClassifier(members[:2], cv=2)),
        ("voting", VotingClassifier(members, voting="soft", flatten_transform=False)),
    ):
        proto = convert_sklearn(estimator.fit(x, y), initial_types=[("x", FloatTensorType([None, FEATURES]))])
        yield name, proto, {"x": x}
    types = [("x", FloatRows([None, FEATURES]))]
    boosted = xgboost.XGBClassifier(n_estimators=50, max_depth=5).fit(x, y)
    yield "XGBoost", onnxmltools.convert_xgboost(boosted, initial_types=types), {"x": x}
    boosted = lightgbm.LGBMClassifier(n_estimators=50, verbose=-1).fit(x, y)
    yield "LightGBM", onnxmltools.convert_lightgbm(boosted, initial_types=types), {"x": x}

    numbers = rng.standard_normal((ROWS, 2), np.float32)
    colors = rng.choice(["red", "green", "blue"], (ROWS, 2)).astype(object)
    columns = np.concatenate([numbers.astype(object), colors], 1)
    scaled = make_pipeline(SimpleImputer(), StandardScaler())
    for name, encoder in (("columns, one-hot", OneHotEncoder()), ("columns, ordinal", OrdinalEncoder())):
        before = ColumnTransformer([("numbers", scaled, [0, 1]), ("colors", encoder, [2, 3])])
        estimator = make_pipeline(before, logistic()).fit(columns, numbers[:, 0] > 0)
        pair = [("numbers", FloatTensorType([None, 2])), ("colors", StringTensorType([None, 2]))]
        yield name, convert_sklearn(estimator, initial_types=pair), {"numbers": numbers, "colors": colors}

    words = np.array(["hello", "world", "good", "bad", "onnx", "model", "data", "tree", "forest", "fast", "slow"])
    lines = [" ".join(rng.choice(words, rng.integers(3, 25))) for _ in range(ROWS)]
    for name, before, estimator in (
        ("TF-IDF", TfidfVectorizer(), logistic()),
        ("TF-IDF of characters", TfidfVectorizer(analyzer="char", ngram_range=(2, 3)), logistic()),
        ("counts, multinomial Bayes", CountVectorizer(), MultinomialNB()),
    ):
        estimator = make_pipeline(before, estimator).fit(lines, ["good" in line for line in lines])
        proto = convert_sklearn(estimator, initial_types=[("x", StringTensorType([None, 1]))])
        for node in proto.graph.node:
            if node.op_type == "StringNormalizer":  # its default locale may not be installed
                node.attribute.append(helper.make_attribute("locale", "C"))
        yield name, proto, {"x": np.array(lines, object).reshape(-1, 1)}


def main() -> None:
    warnings.simplefilter("ignore")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    table = Table("hetero ÷ onnxruntime", "1 row", f"{ROWS} rows")
    ratios: list[list[float]] = []
    for name, proto, feeds in models():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        compiled = hetero.Core().compile_model(hetero.Core().read_model(proto), "CPU", {"INFERENCE_NUM_THREADS": 1})
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
        found = []
        for rows in (1, ROWS):
            part = {key: np.ascontiguousarray(value[:rows]) for key, value in feeds.items()}
            calls = range(200 if rows == 1 else 3)
            works = {
                "hetero": lambda: [compiled(part) for _ in calls],  # noqa: B023 - runs within the iteration
                "onnxruntime": lambda: [session.run(None, part) for _ in calls],  # noqa: B023
            }
            times = medians(works, 31, 2.0)
            found.append(times["hetero"] / times["onnxruntime"])
        ratios.append(found)
        table.add(name, *(f"{ratio:.2f}" for ratio in found))
    means = (statistics.geometric_mean(column) for column in zip(*ratios, strict=True))
    table.add("geometric mean", *(f"{mean:.2f}" for mean in means))
    table.print()


if __name__ == "__main__":
    main()
