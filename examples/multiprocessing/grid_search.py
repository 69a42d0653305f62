"""Search the best parameters of a classifier with scikit-learn, whose fits run in the pool of multiprocessing.

python grid_search.py [FITS] [PROCESSES]
"""

import sys

import numpy as np
from joblib import parallel_config
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC


def main(fits=30, processes=2):
    images, digits = load_digits(return_X_y=True)
    search = GridSearchCV(SVC(gamma=0.001), {"C": np.logspace(-2, 2, int(fits) // 5)}, cv=5, n_jobs=int(processes))
    with parallel_config("multiprocessing"):
        search.fit(images[:500], digits[:500])
    print(f"C = {search.best_params_['C']:.3f}, score {search.best_score_:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
