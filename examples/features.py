"""Classify features of anything from one label per class, and find what belongs to no class.

Run it as a script, or cell by cell in an editor that knows `# %%`:

    python examples/features.py features.png

It draws its own data and needs no download; the plot needs matplotlib.
"""

# %% [markdown]
# ## Features
#
# The classifier takes one row of numbers per example, whatever computed them. Here they are 64 features
# of hand-drawn characters, computed by the encoder that comes with the package. For your own data,
# replace this cell: all that follows uses only `X`.

# %%
import sys

import numpy as np

from semishot import PrototypeClassifier, datasets
from semishot.image_encoders import open_encoder
from semishot.next_labels import next_to_label

KNOWN, STRANGERS, IMAGES = 10, 10, 20

pool = datasets.load("glyphs")  # drawn by code on first use
classes = pool.of_split("test")
chosen = np.random.default_rng(3).choice(len(classes), KNOWN + STRANGERS, replace=False)
starts = [classes[i].start for i in chosen]
images = np.concatenate([pool.images[start : start + IMAGES] for start in starts])
encoder = open_encoder("omniglot")
X = encoder.encode(images.transpose(0, 2, 3, 1))  # (400, 64)

# %% [markdown]
# ## Labels
#
# The first ten characters are our classes, and one example of each has its label. All other examples
# are unlabeled, which is written as -1: the rest of the ten classes, and ten other characters that
# belong to none of them. `truth` is used only to count mistakes.

# %%
truth = np.repeat(np.arange(KNOWN + STRANGERS), IMAGES)
truth[truth >= KNOWN] = -1
labeled = np.arange(KNOWN) * IMAGES
y = np.full(len(X), -1)
y[labeled] = truth[labeled]
unlabeled = y == -1
member = unlabeled & (truth != -1)
stranger = unlabeled & (truth == -1)
print(f"{len(labeled)} labeled, {member.sum()} unlabeled members, {stranger.sum()} strangers")

# %% [markdown]
# ## Fit, with and without the unlabeled examples
#
# `PrototypeClassifier(None)` ignores the unlabeled examples. The default spreads the labels over a graph of
# neighbours and refines each class's prototype with those that seem to belong to it.

# %%
supervised = PrototypeClassifier(None).fit(X, y)
refined = PrototypeClassifier(reject=0.05).fit(X, y)


def accuracy(classifier: PrototypeClassifier) -> float:
    """The share of unlabeled members whose most probable class is the right one."""
    nearest = classifier.classes_[classifier.predict_proba(X[member]).argmax(1)]
    return float((nearest == truth[member]).mean())


print(f"labels alone:            {accuracy(supervised):.1%} of the members right")
print(f"with unlabeled examples: {accuracy(refined):.1%} of the members right")
print(refined.message_)

# %% [markdown]
# ## Reject strangers
#
# `reject=0.05` lets `predict` answer -1 for examples that are less clearly members than 95% of the members
# are. `distractor_score` is the number behind that answer.

# %%
predicted = refined.predict(X)
score = refined.distractor_score(X)
print(f"strangers rejected:      {(predicted[stranger] == -1).mean():.1%}")
print(f"members rejected:        {(predicted[member] == -1).mean():.1%}")

# %% [markdown]
# ## Which examples to label next
#
# Five unlabeled examples whose labels would help most, the most helpful first.

# %%
rows = np.flatnonzero(unlabeled)
ask = rows[next_to_label(X[rows], refined, count=5)]
print("label these next:", ", ".join(map(str, ask)))

# %% [markdown]
# ## Plot
#
# Left: the features along their first two principal components; crosses are rejected examples. Right:
# the score that separates members from strangers.

# %%
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

directions = X / np.linalg.norm(X, axis=1, keepdims=True)
_, _, axes = np.linalg.svd(directions - directions.mean(0), full_matrices=False)
flat = (directions - directions.mean(0)) @ axes[:2].T  # (400, 2)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
accepted = unlabeled & (predicted != -1)
rejected = unlabeled & (predicted == -1)
left.scatter(*flat[accepted].T, c=predicted[accepted], cmap="tab10", s=14, label="given a class")
left.scatter(*flat[rejected].T, c="0.6", marker="x", s=16, linewidths=1, label="rejected")
left.scatter(*flat[labeled].T, c=y[labeled], cmap="tab10", s=90, edgecolors="k", label="labeled")
left.set(title="400 examples, 10 labels", xticks=[], yticks=[])
left.legend(loc="lower right", fontsize=8)
bins = np.linspace(0, 1, 21)
right.hist(score[member], bins, alpha=0.7, label="members")
right.hist(score[stranger], bins, alpha=0.7, label="strangers")
right.axvline(0.95, color="k", linestyle="--", linewidth=1, label="reject=0.05")
right.set(title="Distractor score", xlabel="share of members that lie nearer", ylabel="examples")
right.legend(fontsize=8)

out = sys.argv[1] if len(sys.argv) == 2 else "features.png"
figure.savefig(out, dpi=120)
print("wrote", out)
