"""Formulas as MathML, which browsers draw themselves: pages need no script and no network."""

import re

from docutils.utils.math import latex2mathml


def mathml(tex, *, as_block):
    """Return the MathML of a formula in LaTeX."""
    drawn = latex2mathml.tex2mathml(tex, as_block=as_block)
    for bar in "|‖":  # with an index, browsers draw a bar that may stretch as if it were lowered
        drawn = drawn.replace(f"<mo>{bar}</mo>", f'<mo stretchy="false">{bar}</mo>')
    # Browsers leave no space between a function's name and an argument without parentheses.
    return re.sub(r"<mo>&ApplyFunction;</mo>(?!\s*<mo[^>]*>\()", '<mspace width="0.1667em"></mspace>', drawn)


def visit_inline(writer, node):
    writer.body.append(f'<span class="math">{mathml(node.astext(), as_block=False)}</span>')
    skip(writer, node)


def visit_block(writer, node):
    writer.body.append(f'<div class="math">{mathml(node.astext(), as_block=True)}</div>')
    skip(writer, node)


def skip(_writer, _node):
    """Leave the formula's text out: it is drawn already."""
    from docutils.nodes import SkipNode

    raise SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True}
