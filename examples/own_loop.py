"""A training loop of your own, from the pieces of semishot.

    python examples/own_loop.py

A minute on a laptop; it draws its own data. Each `# %%` begins a cell: editors open the file as a notebook.
Letters: B images of an episode, S support, U unlabeled, Q query images, N classes, D features.
"""

# %%
import torch
from torch import Tensor, nn

from semishot import datasets, refine
from semishot.episodes import EpisodeShape, Stream, all_labeled, labeled_split, sample_episodes
from semishot.prototypes import class_log_probs, episode_loss

UPDATES, TESTS = 300, 200
pool = datasets.load("glyphs")
shape = EpisodeShape(way=5, shot=1, query=1, unlabeled=5, distractors=5)
labels = torch.eye(shape.way).repeat_interleave(shape.shot, 0)  # (S, N), one-hot, class by class
truth = torch.arange(shape.way).repeat_interleave(shape.query)  # (Q,)

# %% any network, any method of `refine.names()` or of your own
torch.manual_seed(0)
encoder = nn.Sequential()
for channels in (1, 32, 32, 32):
    encoder.extend([nn.Conv2d(channels, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()])
    encoder.append(nn.MaxPool2d(2))
encoder.append(nn.Flatten())
refiner = refine.build("masked_soft_kmeans")
optimizer = torch.optim.Adam([*encoder.parameters(), *refiner.parameters()], lr=1e-3)


def log_probs(features: Tensor, method: nn.Module | None) -> Tensor:
    """(B, D) -> (Q, N)"""
    support, unlabeled, query = features.split(list(shape.sizes))
    return class_log_probs(query, refine.refined_prototypes(method, support, labels, unlabeled))


# %% episode `update` of this stream is the same on every machine, whatever came before it
train = labeled_split(pool.of_split("train"), fraction=0.1, seed=0)
for update in range(UPDATES):
    (images,) = sample_episodes(train, shape, Stream(0, "train"), update, 1).images  # (B,)
    features = encoder(torch.from_numpy(pool.images[images]) / 255)
    loss = episode_loss(log_probs(features, refiner), truth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# %% new classes, none of which was seen above
encoder.eval()
test = all_labeled(pool.of_split("test"))
right = {"labels alone": 0, "refined": 0}
with torch.inference_mode():
    for images in sample_episodes(test, shape, Stream(0, "test"), 0, TESTS).images:
        features = encoder(torch.from_numpy(pool.images[images]) / 255)
        for name, method in (("labels alone", None), ("refined", refiner)):
            right[name] += int((log_probs(features, method).argmax(-1) == truth).sum())
for name, count in right.items():
    print(f"{name:14}{count / (TESTS * len(truth)):.1%} of the queries right")
