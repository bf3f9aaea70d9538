"""Every Python file compiles, without leaving a cache behind."""

import tree


def check(name):
    try:
        compile(tree.read(name), name, "exec")
    except SyntaxError as error:
        return f"{name}:{error.lineno}: {error.msg}"
    return ""


names = [n for n in tree.files() if n.endswith(".py")]
tree.verdict("python files", len(names), tree.each(names, check))
