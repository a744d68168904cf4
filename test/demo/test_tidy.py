"""tools/tidy: each rule bites on a breach, and leaves what is right alone."""

import importlib.machinery
import importlib.util
import os

import pytest

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def load_tidy():
    loader = importlib.machinery.SourceFileLoader("tidy", os.path.join(REPOSITORY, "tools/tidy"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("tidy", loader))
    loader.exec_module(module)
    return module


tidy = load_tidy()


def function_of(lines):
    return "int f(void)\n{\n" + "    g();\n" * (lines - 3) + "}\n"


BREACHES = [
    ("src/base/a.c", '#include "core/key.h"\n', "base is below core"),
    ("src/core/a.c", "#include <idem/store.h>\n", "core is below store"),
    ("src/store/a.c", "#include <idem/executor.h>\n", "store is below exec"),
    ("src/exec/a.c", '#include "cli/cli.h"\n', "nothing includes cli/"),
    ("cli/a.c", '#include "demo/payments/money.h"\n', "nothing includes demo/"),
    ("src/core/a.c", "#include <idem/nowhere.h>\n", "has no layer"),
    ("nginx/a.c", '#include "store/backend.h"\n', "nginx/ goes through exec"),
    ("src/store/memory/a.c", "#include <lmdb.h>\n", "belongs to src/store/lmdb/ alone"),
    ("src/core/a.c", "#include <jansson.h>\n", "belongs to cli/ and demo/ alone"),
    ("cli/a.c", "#include <ngx_core.h>\n", "belongs to nginx/ alone"),
    ("src/base/a.c", "    strcpy(a, b);\n", "strcpy() is banned"),
    ("cli/a.c", "    n = atoi(text);\n", "atoi() is banned"),
    ("demo/a.c", "    system(command);\n", "system() is banned"),
    ("test/unit/a.c", "    sprintf(a, b);\n", "sprintf() is banned"),
    ("src/core/a.c", "    now = time(NULL);\n", "the core knows nothing"),
    ("src/core/a.c", "    if (getenv(name))\n", "the core knows nothing"),
    ("src/core/a.c", "    randombytes_buf(a, 1);\n", "the core knows nothing"),
    ("src/exec/a.c", "    p = malloc(1);\n", "memory comes from"),
    ("src/exec/a.c", "#ifdef __linux__\n#endif\n", "conditional code"),
    ("src/exec/a.c", "int a; \n", "blanks at the end"),
    ("src/exec/a.c", "\tint a;\n", "a tab"),
    ("src/exec/a.c", "int a;", "no line break"),
    ("src/exec/a.c", "/* FIX" "ME: later */\n", "a leftover"),
    ("src/exec/a.c", "int a; /* " + "x" * 100 + " */\n", "columns, at most 100"),
    ("nginx/a.c", "int a; /* " + "x" * 80 + " */\n", "columns, at most 80"),
    ("src/exec/a.c", "int a;\n" * 601, "601 lines"),
    ("src/exec/a.c", function_of(61), "f() has 61 lines"),
    ("nginx/a.c", "static int\n" + function_of(60).replace("int f", "f"), "f() has 61 lines"),
    ("test/system/test_a.py", "time.sleep(1)\n", "waits for a fixed time"),
]

FINE = [
    ("src/exec/a.c", "#include <idem/store.h>\n#include \"core/transition.h\"\n"),
    ("nginx/a.c", "#include <ngx_core.h>\n#include <idem/executor.h>\n"),
    ("src/store/lmdb/a.c", "#include <lmdb.h>\n"),
    ("test/unit/a.c", '#include "store/backend.h"\n'),
    ("src/base/memory.c", "    return malloc(size);\n"),
    ("src/core/a.c", "/* strcpy(a, b) */ const char *a = \"atoi(b) \\\" rand()\";\n"),
    ("src/core/a.c", "    mdb_time(a); record->time(b); my_malloc(c);\n"),
    ("src/core/a.h", "#ifndef A_H\n#define A_H\n#endif\n"),
    ("src/exec/a.c", function_of(60)),
    ("src/exec/a.c", "int a;\n" * 600),
    ("src/exec/a.c", "static const int a[] = {\n" + "    1,\n" * 100 + "};\n"),
]


@pytest.mark.parametrize("path, text, told", BREACHES)
def test_a_breach_is_told(path, text, told):
    found = [what for _, what in tidy.check_file(path, text)]
    assert len(found) == 1, found
    assert told in found[0]


@pytest.mark.parametrize("path, text", FINE)
def test_what_is_right_is_left_alone(path, text):
    assert list(tidy.check_file(path, text)) == []


def test_lines_are_told():
    text = "int a;\n/* strcpy(\n) */\nint f(void)\n{\n    strcpy(a, b);\n}\n"
    assert [line for line, _ in tidy.check_file("cli/a.c", text)] == [6]


def test_dead_files_are_told():
    files = {
        "src/core/meson.build": "files('used.c')\nforeach name : ['table']\n",
        "src/core/used.c": '#include "core/used.h"\n', "src/core/used.h": "",
        "test/unit/test_table.c": "", "src/core/dead.c": "", "src/core/dead.h": "",
    }
    assert sorted(path for path, _ in tidy.check_dead(files)) \
        == ["src/core/dead.c", "src/core/dead.h"]
