"""Score the sentiment of texts with pandarallel, which gives a part of the data frame to each process.

    python sentiment.py [TEXTS] [PROCESSES]

The application of Pandarallel in the thesis "Lithops multiprocessing" (URV, 2021), with generated texts.
"""

import random
import sys

import pandas as pd
from pandarallel import pandarallel

SCORES = {"awful": -3, "slow": -1, "not": -1, "fine": 1, "good": 2, "excellent": 3}
WORDS = [*SCORES, "the", "film", "was", "long", "music", "and", "its"]


def sentiment(text):
    """The mean score of the words that have one."""
    scores = [SCORES[word] for word in text.split() if word in SCORES]
    return sum(scores) / len(scores) if scores else 0.0


def main(texts=10_000, processes=2):
    generator = random.Random(4)
    table = pd.DataFrame({"text": [" ".join(generator.choices(WORDS, k=12)) for _ in range(int(texts))]})
    pandarallel.initialize(nb_workers=int(processes), verbose=1)
    table["score"] = table.text.parallel_apply(sentiment)
    print(f"{len(table)} texts, mean score {table.score.mean():.4f}")
    print("best:", table.text[table.score.idxmax()])


if __name__ == "__main__":
    main(*sys.argv[1:])
