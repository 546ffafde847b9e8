"""Learn on a graph of neighbours, and say in words what held-out labels tell about it.

Letters: P rows, H held out, N classes.
"""

from scipy.special import softmax

from semishot.estimator.blocks import Array
from semishot.estimator.evidence import Given
from semishot.estimator.fitted import NOTHING_TELLS, Fitted, doubts, pile_verdict, summary
from semishot.estimator.graph_rule import Learned, Options, learn


def fit_graph(given: Given, options: Options) -> Fitted:
    """Learn on the graph, and tell what held-out labels say about it."""
    learned = learn(given, options)
    labeled = given.labels.sum(1) > 0
    pile = bool((~labeled & ~given.named).any())
    tellable = len(learned.held_out.classes) > 0
    probabilities = held_out_probabilities(learned)  # (H, N)
    return Fitted(
        learned.model,
        learned.members,
        learned.strangers,
        learned.n_strangers,
        learned.answer,
        learned.pile_used if pile and tellable else None,
        told(learned, probabilities, pile),
        summary(probabilities, learned.held_out.classes),
        doubts(probabilities, learned.held_out.places, learned.held_out.classes),
    )


def held_out_probabilities(learned: Learned) -> Array:
    held, model = learned.held_out, learned.model
    found: Array = softmax(model.graph_weight * held.by_graph + model.pull * held.cosines, 1)
    return found


def told(learned: Learned, probabilities: Array, pile: bool) -> str:
    """Whether the pile is used, and why, in words."""
    classes, used = learned.held_out.classes, learned.pile_used
    if not pile:
        return "no unlabeled examples: the labels alone"
    if not len(classes):
        return NOTHING_TELLS
    right = int((probabilities.argmax(1) == classes).sum()) if used else None
    return pile_verdict(len(classes), right, learned.right_alone, learned.gain, used)
