"""A hyper-parameter sweep of scikit-learn whose fits are calls of a session.

`python session/grid_search.py 1 100 10000` fits classifiers of handwritten digits with three factors of the penalty. It
prints the best factor, and the share of digits that its classifiers recognise. It needs scikit-learn.
"""

import sys

from joblib import parallel_config
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from treadle.client import register_joblib, session


def main(factors):
    register_joblib()
    model = make_pipeline(StandardScaler(), RidgeClassifier())
    search = GridSearchCV(model, {"ridgeclassifier__alpha": factors}, cv=5)
    with session("sweep") as s, parallel_config(backend="treadle", session=s):
        search.fit(*load_digits(return_X_y=True))
    print("factor:", search.best_params_["ridgeclassifier__alpha"])
    print(f"recognised: {search.best_score_:.1%}")


if __name__ == "__main__":
    main([float(text) for text in sys.argv[1:]])
