"""Export models of scikit-learn, XGBoost and LightGBM, fitted to random data, for `bench/exported_models.py`.

    python bench/export_classic.py --to classic                # all
    python bench/export_classic.py --to classic forest svm     # those with one of these words in their name
    python bench/exported_models.py classic

Needs the extra ``exports``. Each model becomes NAME-ROWS.onnx, for 1 row and for 1000 rows, and its inputs
NAME-ROWS.npz; the two model files are the same. "Off": the largest difference between onnxruntime and the library that
fitted the model.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that busy-wait make fitting slow on a loaded machine
from sklearn import (
    calibration,
    cluster,
    compose,
    decomposition,
    ensemble,
    feature_extraction,
    impute,
    linear_model,
    mixture,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

Array = NDArray[Any]
FEATURES, CLASSES, ROWS, FITTED = 20, 4, (1, 1000), 2000
OPSETS = {"": 17, "ai.onnx.ml": 3}
WORDS = (
    *("the", "a", "of", "model", "graph", "node", "runs", "fast", "slow", "device", "memory", "tensor", "value"),
    *("shape", "kernel", "thread"),
)


def numbers(rows: int, seed: int) -> Array:
    return np.random.default_rng(seed).normal(size=(rows, FEATURES)).astype(np.float32)


def with_gaps(rows: int, seed: int) -> Array:
    x = numbers(rows, seed)
    x[np.random.default_rng(seed + 1).random(x.shape) < 0.1] = np.nan
    return x


def categories(rows: int, seed: int) -> Array:
    return np.random.default_rng(seed).choice(["red", "green", "blue", "grey"], (rows, 4)).astype(object)


def texts(rows: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    return np.array([[" ".join(rng.choice(WORDS, 12))] for _ in range(rows)], object)


def target(x: Array, classes: int) -> Array:
    """Classes, or numbers for none, which depend on the features."""
    score = np.nan_to_num(x[:, :5].astype(np.float64)) @ [2, -1, 1, 0.5, -2] if x.dtype == np.float32 else None
    if score is None:
        score = np.array([sum(map(len, row)) for row in x], float)
    score = score + np.random.default_rng(9).normal(size=len(x)) * 0.3
    return np.digitize(score, np.quantile(score, np.arange(1, classes) / classes)) if classes else score


def boosted(library: str, kind: str) -> Callable[[], Any]:
    def make() -> Any:
        if library == "xgboost":
            import xgboost

            return getattr(xgboost, kind)(n_estimators=100, max_depth=6, n_jobs=1)
        import lightgbm

        return getattr(lightgbm, kind)(n_estimators=100, num_leaves=31, n_jobs=1, verbose=-1)

    return make


def numbers_and_categories() -> Any:
    """Both kinds of columns, as the numbers of categories."""
    return pipeline.make_pipeline(
        compose.ColumnTransformer(
            [
                ("numbers", preprocessing.StandardScaler(), list(range(10))),
                ("buckets", preprocessing.KBinsDiscretizer(5, encode="onehot-dense"), list(range(10, FEATURES))),
            ]
        ),
        linear_model.LogisticRegression(max_iter=200),
    )


Case = tuple[Callable[[], Any], int, Callable[[int, int], Array]]
MODELS: dict[str, Case] = {
    "logistic": (lambda: linear_model.LogisticRegression(max_iter=200), CLASSES, numbers),
    "logistic_binary": (lambda: linear_model.LogisticRegression(max_iter=200), 2, numbers),
    "linear": (linear_model.LinearRegression, 0, numbers),
    "sgd": (lambda: linear_model.SGDClassifier(random_state=0), CLASSES, numbers),
    "decision_tree": (lambda: tree.DecisionTreeClassifier(max_depth=10, random_state=0), CLASSES, numbers),
    "forest_classifier": (lambda: ensemble.RandomForestClassifier(100, max_depth=10, random_state=0), CLASSES, numbers),
    "forest_regressor": (lambda: ensemble.RandomForestRegressor(100, max_depth=10, random_state=0), 0, numbers),
    "extra_trees": (lambda: ensemble.ExtraTreesClassifier(50, max_depth=10, random_state=0), CLASSES, numbers),
    "gradient_boosting": (lambda: ensemble.GradientBoostingClassifier(n_estimators=50, random_state=0), 2, numbers),
    "hist_boosting": (lambda: ensemble.HistGradientBoostingRegressor(random_state=0), 0, with_gaps),
    "adaboost": (lambda: ensemble.AdaBoostClassifier(random_state=0), CLASSES, numbers),
    "bagging": (lambda: ensemble.BaggingRegressor(random_state=0), 0, numbers),
    "voting": (
        lambda: ensemble.VotingClassifier(
            [("a", linear_model.LogisticRegression()), ("b", naive_bayes.GaussianNB())],
            voting="soft",
            flatten_transform=False,
        ),
        CLASSES,
        numbers,
    ),
    "isolation_forest": (lambda: ensemble.IsolationForest(n_estimators=50, random_state=0), -1, numbers),
    "svm_rbf": (lambda: svm.SVC(probability=True, random_state=0), CLASSES, numbers),
    "svm_linear": (svm.LinearSVC, CLASSES, numbers),
    "svr": (svm.SVR, 0, numbers),
    "neighbors": (neighbors.KNeighborsClassifier, CLASSES, numbers),
    "bayes": (naive_bayes.GaussianNB, CLASSES, numbers),
    "perceptron": (lambda: neural_network.MLPClassifier((64, 32), max_iter=20, random_state=0), CLASSES, numbers),
    "kmeans": (lambda: cluster.KMeans(8, n_init=1, random_state=0), -1, numbers),
    "mixture": (lambda: mixture.GaussianMixture(3, random_state=0), -1, numbers),
    "pca": (lambda: decomposition.PCA(8), -1, numbers),
    "scaled_logistic": (
        lambda: pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
        CLASSES,
        numbers,
    ),
    "imputed_forest": (
        lambda: pipeline.make_pipeline(
            impute.SimpleImputer(),
            preprocessing.MinMaxScaler(),
            ensemble.RandomForestClassifier(30, max_depth=8, random_state=0),
        ),
        CLASSES,
        with_gaps,
    ),
    "polynomial": (
        lambda: pipeline.make_pipeline(preprocessing.PolynomialFeatures(2), linear_model.Ridge()),
        0,
        numbers,
    ),
    "columns": (numbers_and_categories, CLASSES, numbers),
    "one_hot": (
        lambda: pipeline.make_pipeline(preprocessing.OneHotEncoder(), linear_model.LogisticRegression()),
        CLASSES,
        categories,
    ),
    "ordinal": (
        lambda: pipeline.make_pipeline(preprocessing.OrdinalEncoder(), tree.DecisionTreeClassifier(random_state=0)),
        CLASSES,
        categories,
    ),
    "tfidf": (
        lambda: pipeline.make_pipeline(
            compose.ColumnTransformer([("text", feature_extraction.text.TfidfVectorizer(), 0)]),
            linear_model.LogisticRegression(),
        ),
        CLASSES,
        texts,
    ),
    "text_bayes": (
        lambda: pipeline.make_pipeline(
            compose.ColumnTransformer([("text", feature_extraction.text.CountVectorizer(), 0)]),
            naive_bayes.MultinomialNB(),
        ),
        CLASSES,
        texts,
    ),
    "stacking": (
        lambda: ensemble.StackingClassifier(
            [("logistic", linear_model.LogisticRegression(max_iter=200)), ("bayes", naive_bayes.GaussianNB())], cv=2
        ),
        CLASSES,
        numbers,
    ),
    "normalizer": (
        lambda: pipeline.make_pipeline(preprocessing.Normalizer(), linear_model.LogisticRegression(max_iter=200)),
        CLASSES,
        numbers,
    ),
    "calibrated": (
        lambda: calibration.CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=2),
        CLASSES,
        numbers,
    ),
    "xgboost_classifier": (boosted("xgboost", "XGBClassifier"), CLASSES, numbers),
    "xgboost_binary": (boosted("xgboost", "XGBClassifier"), 2, numbers),
    "xgboost_regressor": (boosted("xgboost", "XGBRegressor"), 0, with_gaps),
    "lightgbm_classifier": (boosted("lightgbm", "LGBMClassifier"), CLASSES, numbers),
    "lightgbm_regressor": (boosted("lightgbm", "LGBMRegressor"), 0, with_gaps),
}
"""Name -> what makes the model, the number of classes (0: a regression; -1: nothing to predict), and its data."""


def exported(name: str, fitted: Any, x: Array) -> bytes:
    if name.startswith(("xgboost", "lightgbm")):
        from onnxmltools import convert_lightgbm, convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType

        convert = convert_xgboost if name.startswith("xgboost") else convert_lightgbm
        model = convert(fitted, initial_types=[("x", FloatTensorType([None, x.shape[1]]))], target_opset=15)
        return model.SerializeToString()
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    kind = FloatTensorType if x.dtype == np.float32 else StringTensorType
    types = [("x", kind([None, x.shape[1]]))]
    made = to_onnx(fitted, initial_types=types, target_opset=OPSETS)
    for node in made.graph.node:
        if node.op_type == "StringNormalizer":  # its default locale may not be installed
            node.attribute.append(onnx.helper.make_attribute("locale", "C"))
    return made.SerializeToString()


def export(name: str, to: Path) -> float:
    """Write a model and its inputs. Returns the difference of onnxruntime's results from those of the library."""
    make, classes, data = MODELS[name]
    x = data(FITTED, 0)
    fitted = make()
    fitted.fit(x, *([target(x, classes)] if classes >= 0 else []))
    model = exported(name, fitted, x)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for rows in ROWS:
        given = data(rows, 1)
        path = to / f"{name}-{rows}.onnx"
        path.write_bytes(model)
        # NumPy stores objects with pickle only.
        np.savez(path.with_suffix(".npz"), x=given if given.dtype == np.float32 else given.astype(str))
    found = session.run(None, {"x": given})[0]
    expected = fitted.predict(given) if hasattr(fitted, "predict") else fitted.transform(given)
    if classes == 0 or not hasattr(fitted, "predict"):
        return float(np.abs(found.reshape(expected.shape) - expected).max() / np.abs(expected).max())
    return float(np.mean(found.reshape(expected.shape) != expected))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="in the name of a model; default: all models")
    parser.add_argument("--to", type=Path, required=True, help="folder for the files")
    parser.add_argument("--again", action="store_true", help="also export models whose files are there")
    chosen = parser.parse_args()
    chosen.to.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    failed = []
    for name in MODELS:
        if chosen.words and not any(word in name for word in chosen.words):
            continue
        if (chosen.to / f"{name}-{ROWS[-1]}.npz").exists() and not chosen.again:
            continue
        try:
            print(f"{name}: off {export(name, chosen.to):.1g}", flush=True)
        except Exception:
            traceback.print_exc()
            failed.append(name)
    if failed:
        sys.exit(f"not exported: {', '.join(failed)}")


if __name__ == "__main__":
    main()
