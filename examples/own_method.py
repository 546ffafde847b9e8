"""Write a refinement method of your own and measure what it gains.

    python examples/own_method.py

It draws its own data and needs no download. Letters: E episodes, N classes, U unlabeled examples,
D features.
"""

# %% [markdown]
# ## The method
#
# A refinement method says how much of each unlabeled example goes to each class. Soft k-means shares out
# every example. If half of them belong to none of the classes, that pulls prototypes away from their
# classes. This method uses only the examples that lie nearest to a prototype.

# %%
import numpy as np
import torch
from torch import Tensor, nn

from semishot import PrototypeClassifier, datasets, refine
from semishot.image_encoders import open_encoder
from semishot.prototypes import class_log_probs, squared_distances


class TrimmedKMeans(nn.Module):
    """Soft k-means on the `kept` share of the unlabeled examples that lies nearest to a prototype."""

    def __init__(self, kept: float = 0.5) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, unlabeled: Tensor, prototypes: Tensor) -> Tensor:
        """(..., U, D), (..., N, D) -> (..., U, N)"""
        d = squared_distances(unlabeled, prototypes)  # (..., U, N)
        nearest = d.amin(-1)  # (..., U)
        farthest_kept = nearest.quantile(self.kept, dim=-1, keepdim=True)  # (..., 1)
        kept = (nearest <= farthest_kept).unsqueeze(-1)  # (..., U, 1)
        return (-d).softmax(-1) * kept  # (..., U, N)


# %% [markdown]
# ## Episodes
#
# An episode is a small classification problem: 5 classes that the encoder has never seen, one labeled
# example of each, unlabeled examples, and queries to classify. Distractors are unlabeled examples of
# other classes. All 500 episodes are drawn at once, as one tensor.

# %%
WAY, UNLABELED, QUERY, DISTRACTORS, EPISODES = 5, 5, 5, 5, 500
CLASSES, IMAGES = 100, 20

pool = datasets.load("glyphs")
starts = [c.start for c in pool.of_split("test")[:CLASSES]]
images = np.stack([pool.images[s : s + IMAGES] for s in starts])  # (100, 20, 1, 28, 28)
pixels = torch.from_numpy(images).flatten(0, 1).permute(0, 2, 3, 1)  # (2000, 28, 28, 1)
encoder = open_encoder("omniglot")
features = torch.from_numpy(encoder.encode(pixels))  # (2000, D)
features = features.unflatten(0, (CLASSES, IMAGES))  # (100, 20, D)


def accuracy(refiner: nn.Module | None, distractors: int) -> float:
    """The share of queries that are classified correctly, over all episodes."""
    rng = np.random.default_rng(0)  # the same episodes for every method
    order = rng.permuted(np.tile(np.arange(CLASSES), (EPISODES, 1)), axis=1)
    places = rng.permuted(np.tile(np.arange(IMAGES), (EPISODES, WAY + DISTRACTORS, 1)), axis=2)
    drawn = features[order[:, : WAY + DISTRACTORS, None], places][:, : WAY + distractors]

    # drawn is (E, N + distractors, IMAGES, D)
    support = drawn[:, :WAY, 0]  # (E, N, D)
    unlabeled = drawn[:, :, 1 : 1 + UNLABELED].flatten(1, 2)  # (E, U, D)
    queries = drawn[:, :WAY, -QUERY:].flatten(1, 2)  # (E, N * QUERY, D)
    labels = torch.eye(WAY).expand(EPISODES, -1, -1)  # (E, N, N), one-hot
    truth = torch.arange(WAY).repeat_interleave(QUERY)

    prototypes = refine.refined_prototypes(refiner, support, labels, unlabeled)  # (E, N, D)
    return float((class_log_probs(queries, prototypes).argmax(-1) == truth).float().mean())


# %% [markdown]
# ## What it gains
#
# The method is used exactly like those that come with the package.

# %%
methods = {
    "labels alone": None,
    "soft_kmeans": refine.build("soft_kmeans"),
    "TrimmedKMeans": TrimmedKMeans(),
}
print(f"{'':14}no distractors  5 distractor classes")
for name, refiner in methods.items():
    print(f"{name:14}{accuracy(refiner, 0):14.1%}{accuracy(refiner, DISTRACTORS):22.1%}")

# %% [markdown]
# ## The same method in the estimator
#
# `PrototypeClassifier` takes any such module.

# %%
X = features[:10].flatten(0, 1).numpy()  # ten classes, of which five have a label
y = np.full(len(X), -1)
y[: WAY * IMAGES : IMAGES] = np.arange(WAY)
classifier = PrototypeClassifier(TrimmedKMeans(kept=0.5)).fit(X, y)
right = classifier.predict(X[: WAY * IMAGES]) == np.repeat(np.arange(WAY), IMAGES)
print(f"PrototypeClassifier: {right.mean():.1%} right")
