"""Pictures of grammars, trees, charts and training, and reports. matplotlib is imported when it draws, not before."""

from rankspace.viz.curves import training_curves
from rankspace.viz.heat_map import heat_map
from rankspace.viz.picture import Picture
from rankspace.viz.report import Report
from rankspace.viz.rules import draw_rules
from rankspace.viz.state_words import state_words_html, state_words_text
from rankspace.viz.tree_svg import tree_pair_picture, tree_picture

__all__ = [
    "Picture",
    "Report",
    "draw_rules",
    "heat_map",
    "state_words_html",
    "state_words_text",
    "training_curves",
    "tree_pair_picture",
    "tree_picture",
]
