"""Graph replays of one update of several fleets: time, number of kernels, and the longest of them."""

import sys
from collections import Counter
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from semishot.data.episodes import EpisodeShape
from semishot.training.config import Member, Recipe
from semishot.training.fleet_training import fleet_optimizer
from semishot.training.fleets import build_fleet
from semishot.training.update import deterministic_cudnn, update

MASKED = "masked_soft_kmeans"
METHODS = ("soft_kmeans", "distractor_cluster", MASKED)
TEN_EACH = [method for method in METHODS for _ in range(10)]
PHOTO = EpisodeShape(query=5, distractors=5)
CASES = {
    "methods-distractors-28": (TEN_EACH, EpisodeShape(distractors=5), 1, 28),
    "methods-28": (TEN_EACH, EpisodeShape(), 1, 28),
    "supervised-28": (["supervised"] * 10, EpisodeShape(unlabeled=0), 1, 28),
    "masked70-distractors-28": ([MASKED] * 70, EpisodeShape(distractors=5), 1, 28),
    "methods-40way-28": (TEN_EACH, EpisodeShape(way=40, distractors=5), 1, 28),
    "masked-distractors-84": ([MASKED] * 10, PHOTO, 3, 84),
    "masked3-distractors-84": ([MASKED] * 3, PHOTO, 3, 84),
    "masked-5shot-84": ([MASKED] * 10, EpisodeShape(shot=5, query=5, distractors=5), 3, 84),
    "supervised-84": (["supervised"] * 10, EpisodeShape(query=5, unlabeled=0), 3, 84),
}
"""Methods of the runs, episode, channels, side."""
REPLAYS = 5


def update_of(case: str, device: torch.device) -> Callable[[], object]:
    models, shape, channels, side = CASES[case]
    members = tuple(Member(model, seed) for seed, model in enumerate(models))
    fleet = build_fleet(members, Recipe(), channels).to(device).train()
    fleet.encoder.fused = True
    optimizer = fleet_optimizer(Recipe(), fleet)
    pool = torch.randint(256, (2000, channels, side, side), device=device).byte()
    chosen = torch.randint(2000, (len(models), shape.images), device=device)
    return lambda: update(fleet, optimizer, pool[chosen], None, (shape,))


def captured(work: Callable[[], object]) -> tuple[torch.cuda.CUDAGraph, torch.cuda.Stream]:
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), deterministic_cudnn():
        for _ in range(3):
            work()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            work()
    return graph, stream


def microseconds(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, count: int = 40) -> float:
    """The median of five times `count` replays, of one replay."""
    times = []
    with torch.cuda.stream(stream):
        for _ in range(5):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(count):
                graph.replay()
            end.record()
            end.synchronize()
            times.append(1000 * begin.elapsed_time(end) / count)
    return sorted(times)[2]


def kernels(
    graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream
) -> tuple[Counter[str], Counter[str]]:
    """By name: how many in one replay, and their microseconds together."""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as found:
        with torch.cuda.stream(stream):
            for _ in range(REPLAYS):
                graph.replay()
        torch.cuda.synchronize()
    counts: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for event in found.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            counts[event.name] += 1
            times[event.name] += event.time_range.elapsed_us()
    return (
        Counter({name: count // REPLAYS for name, count in counts.items()}),
        Counter({name: time / REPLAYS for name, time in times.items()}),
    )


def main() -> None:
    device = torch.device("cuda")
    for case in sys.argv[1:] or CASES:
        graph, stream = captured(update_of(case, device))
        taken = microseconds(graph, stream)
        counts, times = kernels(graph, stream)
        runs = len(CASES[case][0])
        print(f"{case}: {taken:.0f} us, {taken / runs:.1f} per run, {sum(counts.values())} kernels")
        for name, time in times.most_common(12):
            print(f"    {time:7.1f} us  {counts[name]:3} x {name[:70]}")


if __name__ == "__main__":
    main()
