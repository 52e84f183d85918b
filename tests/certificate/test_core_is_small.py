"""What a verdict rests on is small and stands alone; the page tells its size."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

from ennopt.certificate import core, lines

PAGE = Path(__file__).parents[2] / "docs" / "proof.md"
MOST = 550


def code_lines(path):
    """Numbers of lines with code: no blanks, comments or docstrings."""
    text = path.read_text(encoding="utf-8")
    skip = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT,
            tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}  # fmt: skip
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skip:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                lines -= set(range(node.lineno, node.end_lineno + 1))
    return lines


def test_the_page_states_how_many_lines_must_be_trusted():
    count = sum(len(code_lines(Path(part.__file__))) for part in (core, lines))
    told = re.search(r"`lines.py`, (\d+) lines of code", PAGE.read_text("utf-8"))
    assert told is not None
    assert int(told.group(1)) == count
    assert count <= MOST


def test_comments_and_docstrings_do_not_count(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        '"""Doc.\n\nMore."""\n\n# reason\nx = 1  # one\n\n\ny = (\n  2\n)\n'
    )
    assert len(code_lines(path)) == 4


def test_the_checker_loads_neither_kernel_nor_engine_nor_solver():
    code = (
        "import sys, types\n"
        "root = types.ModuleType('ennopt'); root.__path__ = [sys.argv[1]]\n"
        "sys.modules['ennopt'] = root\n"  # the package without its own imports
        "import ennopt.certificate.checker\n"
        "searching = ('ennopt.engine', 'ennopt.bounds', 'ennopt._kernel', 'scipy',\n"
        "             'ennopt.canonical', 'ennopt.milp', 'highspy')\n"
        "bad = [name for name in sys.modules if name.startswith(searching)]\n"
        "assert not bad, bad\n"
    )
    folder = Path(core.__file__).parents[1]
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)
