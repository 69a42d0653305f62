"""A container image instead of a zip: for libraries that exceed a zip, or a Python that the provider does not offer.

The recipe is text. The user runs `docker build` and `docker push`, with credentials that treadle never sees.
"""

from __future__ import annotations

from typing import Literal

from .target import Target

Provider = Literal["lambda", "openwhisk"]

_LAMBDA = """\
# AWS's base image has the runtime client: docs.aws.amazon.com/lambda/latest/dg/python-image.html
FROM public.ecr.aws/lambda/python:{python}
COPY package/ ${{LAMBDA_TASK_ROOT}}/
CMD ["treadle.executors.aws.entry.handler"]
"""

_OPENWHISK = """\
# The runtime's image has the proxy for /init and /run; the action itself is small, it finds the libraries here:
# actions-docker.md of apache/openwhisk, extending existing runtimes.
FROM openwhisk/action-python-v{python}
COPY package/ /usr/local/lib/python{python}/site-packages/
"""


def dockerfile(provider: Provider, target: Target) -> str:
    """The recipe; the folder `package/` beside it holds the unpacked package."""
    return (_LAMBDA if provider == "lambda" else _OPENWHISK).format(python=target.python)
