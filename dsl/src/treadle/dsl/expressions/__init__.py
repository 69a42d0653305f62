"""The expression language of `when`, `until`, `filter` and `${{ }}`: paths, literals, operators, functions.

Layout: `nodes` (syntax tree, error, limits), `parser` (text to tree, and back), `evaluator`, `regex` (regular
expressions), `checker` (types before the run).

Pure and bounded: an expression has at most MAX_LENGTH characters and MAX_DEPTH levels. It ends after at most as many
steps as it has characters, and each step reads each value at most once. It reads no clock and no randomness, so a
Temporal workflow may evaluate it. Depends only on the standard library, and on RE2 for patterns.
"""

from .checker import Scope as Scope
from .checker import Type as Type
from .checker import check as check
from .evaluator import evaluate as evaluate
from .nodes import Array as Array
from .nodes import Binary as Binary
from .nodes import BuiltinCall as BuiltinCall
from .nodes import Expr as Expr
from .nodes import ExpressionError as ExpressionError
from .nodes import Index as Index
from .nodes import Literal as Literal
from .nodes import Path as Path
from .nodes import Unary as Unary
from .nodes import paths as paths
from .parser import parse as parse
from .parser import read_paths as read_paths
from .parser import unparse as unparse
