"""What comes out of labeling: sorted files, tables and a saved model, from the predictions."""

import html
import json
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple

import numpy as np

from semishot import __version__
from semishot.errors import InputError
from semishot.label.session import LabelingSession
from semishot.sorter.label_events import ConflictError
from semishot.sorter.listing import STRANGER
from semishot.sorter.moving import move_files
from semishot.sorter.moving.journal import (
    SORTED,
    Sorting,
    read_journal,
    undo_command,
    write_journal,
)
from semishot.sorter.moving.move_files import LOCK, Wanted, class_folders, is_linked, plan
from semishot.sorter.predictions import csv_bytes, csv_table
from semishot.sorter.requests import How
from semishot.system.files import real_path, whole_folder, write_whole
from semishot.system.locks import Lock

Which = Literal["all", "confirmed"]
KEYWORDS = "keywords"
SIDECAR = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:subject><rdf:Bag><rdf:li>{}</rdf:li></rdf:Bag></dc:subject>
</rdf:Description></rdf:RDF></x:xmpmeta>
<?xpacket end="w"?>
"""
"""IPTC keywords are `dc:subject` in XMP."""
CAMTRAP = (
    "observationID deploymentID mediaID eventID eventStart eventEnd observationLevel observationType "
    "cameraSetupType scientificName count lifeStage sex behavior individualID individualPositionRadius "
    "individualPositionAngle individualSpeed bboxX bboxY bboxWidth bboxHeight classificationMethod "
    "classifiedBy classificationTimestamp classificationProbability observationTags observationComments"
)
"""The columns of observations.csv."""


class DecidedFile(NamedTuple):
    """A file, and what is to become of it."""

    file: str
    label: str
    """A class, or `stranger`."""
    probability: float
    """Of the label, strangers taken into account."""
    stranger: float
    source: Literal["confirmed", "guessed"]
    digest: bytes
    given: bool
    """Whether it lies in --labeled."""


def decided_files(session: LabelingSession, which: Which) -> list[DecidedFile]:
    """Every file of which something is known, in the order of names."""
    predictions, known = session.predictions, session.images
    decisions, confirmed = predictions.decisions()
    names = list(predictions.state.classes.values())
    files = []
    with known.lock:
        for row, image in enumerate(predictions.images.tolist()):
            if decisions[row] == -1 or (which == "confirmed" and not confirmed[row]):
                continue
            label = names[decisions[row]] if decisions[row] >= 0 else STRANGER
            source: Literal["confirmed", "guessed"] = "guessed"
            stranger = float(predictions.stranger[row])
            chance = stranger if label == STRANGER else float(predictions.sure[row])
            if confirmed[row]:
                source, chance, stranger = "confirmed", 1.0, float(label == STRANGER)
            digest, given = known.digest_of[image], image in known.given
            for file in known.present(image):
                files.append(DecidedFile(file, label, chance, stranger, source, digest, given))
    return sorted(files)


def labels_csv(session: LabelingSession, which: Which) -> str:
    """path, label, probability, stranger_probability, source; `classify --labeled` reads it, too."""
    rows = (
        (f.file, f.label, round(f.probability, 4), round(f.stranger, 4), f.source)
        for f in decided_files(session, which)
    )
    return csv_table(("path", "label", "probability", "stranger_probability", "source"), rows)


def metadata_csv(session: LabelingSession, which: Which) -> str:
    """file_name, label: for Hugging Face's ImageFolder, beside the images of the pile, without strangers."""
    rows = ((name, f.label) for name, f in in_pile(session, which) if f.label != STRANGER)
    return csv_table(("file_name", "label"), rows)


def in_pile(session: LabelingSession, which: Which) -> list[tuple[str, DecidedFile]]:
    """The files of the pile that are decided, by their names in it."""
    files = decided_files(session, which)
    return [(session.images.shown(file.file), file) for file in files if not file.given]


def coco_json(session: LabelingSession, which: Which) -> str:
    """Images, categories, and the class of each image, as COCO Camera Traps has them: without boxes."""
    files = in_pile(session, which)
    numbers = {name: n for n, name in enumerate(session.predictions.state.classes.values(), 1)}
    content = {
        "info": {"description": "Labels by semishot"},
        "categories": [{"id": number, "name": name} for name, number in numbers.items()],
        "images": [{"id": n, "file_name": name} for n, (name, _) in enumerate(files, 1)],
        "annotations": [
            {
                "id": n,
                "image_id": n,
                "category_id": numbers[f.label],
                "score": round(f.probability, 4),
            }
            for n, (_, f) in enumerate(files, 1)
            if f.label != STRANGER
        ],
    }
    return json.dumps(content, indent=1)


def observations_csv(session: LabelingSession, which: Which) -> str:
    """Observations of Camtrap DP 1.0: folders are deployments, files are media, at the time of the file."""
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    rows = []
    for name, f in in_pile(session, which):
        seen = session.store.files.get(f.file)
        time = datetime.fromtimestamp(seen.changed / 1e9).astimezone() if seen else None
        start = time.isoformat(timespec="seconds") if time else ""
        known = f.source == "confirmed"
        filled = {
            "observationID": name,
            "deploymentID": PurePath(name).parent.as_posix(),
            "mediaID": name,
            "eventStart": start,
            "eventEnd": start,
            "observationLevel": "media",
            "observationType": "unclassified" if f.label == STRANGER else "animal",
            "scientificName": "" if f.label == STRANGER else f.label,
            "classificationMethod": "human" if known else "machine",
            "classifiedBy": "" if known else f"semishot {__version__}",
            "classificationTimestamp": now,
            "classificationProbability": "" if known else round(f.probability, 4),
        }
        rows.append([filled.get(column, "") for column in CAMTRAP.split()])
    return csv_table(CAMTRAP.split(), rows)


TABLES: dict[str, Callable[[LabelingSession, Which], str]] = {
    "labels.csv": labels_csv,
    "metadata.csv": metadata_csv,
    "coco.json": coco_json,
    "observations.csv": observations_csv,
}


def write_table(session: LabelingSession, name: str, which: Which) -> bytes:
    """Write a table to OUT; its text."""
    session.caught_up()
    text = csv_bytes(TABLES[name](session, which))
    write_whole(session.reader.request.folder / name, text)
    return text


def write_keywords(session: LabelingSession, which: Which) -> tuple[Path, int]:
    """OUT/keywords: an XMP sidecar for each image of a class, in the folders of the pile. Originals stay."""
    session.caught_up()
    out, count = session.reader.request.folder, 0
    with Lock(out / LOCK), whole_folder(out / KEYWORDS) as folder:
        for name, file in in_pile(session, which):
            path = folder / f"{name}.xmp"
            if file.label == STRANGER or Path(name).is_absolute():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, SIDECAR.format(html.escape(file.label)))
            count += 1
    return out / KEYWORDS, count


def wanted_files(session: LabelingSession, how: How, which: Which) -> tuple[list[Wanted], int]:
    """Every file of the pile that is sorted, and how many are links, or behind links, and are not moved."""
    pile, wanted, links = session.reader.request.pile, list[Wanted](), 0
    for decided in decided_files(session, which):
        path = Path(decided.file)
        if decided.given and not path.is_relative_to(pile):
            continue
        if how == "move" and is_linked(path, pile):
            links += 1
        else:
            wanted.append(Wanted(path, decided.label, decided.digest.hex()))
    return wanted, links


def shown_plan(session: LabelingSession, how: How, which: Which) -> dict[str, Any]:
    """What sorting would do, for the page, and the sorting that is in OUT, if there is one."""
    request, status = session.reader.request, session.reader.status
    version = session.caught_up().decided
    wanted, links = wanted_files(session, how, which)
    names = class_folders(file.label for file in wanted)
    in_pile = [
        name for name, seen in status.items() if seen and Path(name).is_relative_to(request.pile)
    ]
    sorting = read_journal(request.folder)
    return {
        "folders": dict(sorted(Counter(names[file.label] for file in wanted).items())),
        "left": max(0, len(in_pile) - len(wanted) - links),
        "links": links,
        "files": len(wanted),
        "bytes": sum((status.get(str(file.source)) or (0, 0))[0] for file in wanted),
        "free": shutil.disk_usage(request.folder).free,
        "out": str(real_path(request.folder) / SORTED),
        "pile": str(real_path(request.pile)),
        "sorting": sorting
        and {"how": sorting.how, "files": len(sorting.steps), "done": sorting.done},
        "command": undo_command(request.folder),
        "version": version,
    }


def apply(
    session: LabelingSession, how: How, which: Which, shown: int | None = None
) -> tuple[int, list[str]]:
    """Sort the files; how many were sorted, and which could not be, and why.

    `shown` is the version of the plan that a person has seen: nothing else is done.
    """
    out, pile = session.reader.request.folder, session.reader.request.pile
    session.store.check_present()
    with Lock(out / LOCK):
        before = read_journal(out)
        if before is not None and before.how != how:
            raise InputError(
                f"{out / SORTED} was sorted by {before.how}: choose that to sort it again, or undo it"
            )
        if before is not None and not before.done:
            return _complete(session, before, [])
        version = session.caught_up().decided
        if shown not in (None, version):
            raise ConflictError("there are new answers or files since then; this is the plan now")
        wanted, _ = wanted_files(session, how, which)
        sorting, left_alone = plan(out, how, wanted, pile)
        write_journal(sorting)
        return _complete(session, sorting, left_alone)


def _complete(
    session: LabelingSession, sorting: Sorting, left_alone: list[str]
) -> tuple[int, list[str]]:
    outcome = move_files.complete(sorting)
    session.reader.look_again.set()
    return outcome.count, [*left_alone, *outcome.problems]


def save_model(session: LabelingSession) -> Path:
    """OUT/model, for `semishot predict` and `export`, as `classify` leaves it."""
    from semishot.estimator.fitted_model import fit_default
    from semishot.sorter.out_folder import SAVED_MODEL, write_saved_model

    predictions, reader = session.caught_up(), session.reader
    answers = predictions.answers
    classes, known = predictions.state.classes, session.pile.names
    class_features = {classes[n]: known[n] for n in classes.keys() & known.keys()}
    if not ((answers >= 0).any() or class_features) or reader.encoder is None:
        raise InputError("a model needs a labeled image; label one first")
    names = np.array([*classes.values(), -2, -1], object)  # by negative index
    labels, out = names[answers], reader.request.folder
    features = session.images.features[: len(labels)]
    reject = predictions.state.reject or "auto"
    classifier, _ = fit_default(features, labels, reject, class_features)
    with Lock(out / LOCK):
        write_saved_model(out, reader.encoder, classifier)
    return out / SAVED_MODEL
