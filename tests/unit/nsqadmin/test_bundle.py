"""The script that is made of the page's modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqadmin_py.web import shell
from nsqadmin_py.web.shell import NotBundled, bundled

MODULES = {
    "app.js": 'import { a as b,\n  c } from "./lib/x.js";\nimport d from "./lib/y.js";\nb(c, d, import("./lib/z.js"));',
    "lib/x.js": '/** Comment. */\nexport const a = 1;\n// More.\nexport async function c() { return "// stays"; }\n',
    "lib/y.js": "var q=1;function f(){}export{f as g,q};\nexport default q;",
    "lib/z.js": 'import { a } from "./x.js";\nexport class Z {}\n',
}


def test_each_module_is_there_once_after_what_it_imports() -> None:
    text = bundled("app.js", MODULES.__getitem__, {})
    assert (
        text
        == """const lib$x$js = (() => {
const a = 1;
async function c() { return "// stays"; }

return { a: a, c: c };
})();
const lib$y$js = (() => {
var q=1;function f(){}
const $default = q;
return { g: f, q: q, default: $default };
})();
const lib$z$js = (() => {
const { a } = lib$x$js;
class Z {}

return { Z: Z };
})();
const app$js = (() => {
const { a: b,
  c } = lib$x$js;
const { default: d } = lib$y$js;
b(c, d, Promise.resolve(lib$z$js));
return {  };
})();"""
    )


def test_a_module_may_stay_apart() -> None:
    text = bundled("app.js", MODULES.__getitem__, {"lib/z.js": "/static/lib/z.js?v=1"})
    assert 'import("/static/lib/z.js?v=1")' in text
    assert "class Z" not in text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('import * as x from "./lib/x.js";', "import"),
        ('export * from "./lib/x.js";', "export"),
        ("export let x = 1;", "export"),
        ("const here = import.meta.url;", "import.meta"),
        ('import { q } from "./app.js";', "imports itself"),
    ],
)
def test_other_forms_are_refused(text: str, why: str) -> None:
    with pytest.raises(NotBundled, match=why):
        bundled("app.js", {**MODULES, "app.js": text}.__getitem__, {})


def test_all_modules_of_the_page_are_in_its_script() -> None:
    read: list[str] = []

    def text_of(path: str) -> str:
        read.append(path)
        return (shell.STATIC / path).read_text()

    bundled("app.js", text_of, {"vendor/uplot.js": "x"})
    files = {str(path.relative_to(shell.STATIC)) for path in Path(shell.STATIC).rglob("*.js")}
    assert files - set(read) == {"vendor/uplot.js"}
