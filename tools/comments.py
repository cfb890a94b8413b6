"""How many comments code has: `python tools/comments.py FOLDER...`, for docs/models.md.

Laws
1. A line counts as a comment where the tokenizer finds one in it, beside code too.
2. A line counts as code where a token other than a comment stands in it. A statement that is only a text (a docstring)
   is neither.
3. Tests and what is vendored do not count.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from pathlib import Path
from typing import Final

NOT_COUNTED: Final = frozenset({"test", "tests", "_tests", "vendor"})
NO_CODE: Final = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    | {tokenize.ENCODING}
)


def counted(path: Path) -> tuple[int, int]:
    """Lines with comments, and lines of code."""
    comments: set[int] = set()
    code: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                comments.add(token.start[0])
            elif token.type not in NO_CODE:
                code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(comments), len(code)


def main(folders: list[str]) -> None:
    for folder in folders:
        files = [each for each in Path(folder).rglob("*.py") if NOT_COUNTED.isdisjoint(each.relative_to(folder).parts)]
        counts = [counted(each) for each in files]
        comments, code = (sum(each) for each in zip(*counts, strict=True))
        print(f"{folder}: {len(files)} files, {comments} of {code} lines: {100 * comments / code:.1f} of 100")


if __name__ == "__main__":
    main(sys.argv[1:])
