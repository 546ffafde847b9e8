"""What comes out of labeling: sorted files, tables, keywords and a saved model, from the predictions."""

import html
import json
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple

import numpy as np
from rich.filesize import decimal

from semishot import __version__
from semishot.errors import InputError
from semishot.label.pile import WatchedPile
from semishot.label.predictions import UNKNOWN, Predictions
from semishot.label.session import LabelingSession
from semishot.sorter.label_events import ConflictError
from semishot.sorter.labels import SeenFile
from semishot.sorter.listing import STRANGER
from semishot.sorter.moving import move_files
from semishot.sorter.moving.journal import SORTED, read_journal, undo_command, write_journal
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
    name: str
    """In the pile; empty for a file that lies elsewhere, such as in --labeled."""
    digest: bytes
    seen: SeenFile


def decided_files(pile: WatchedPile, known: Predictions, which: Which) -> list[DecidedFile]:
    """Every file of which something is known, in the order of names."""
    labels = [*known.state.classes.values(), STRANGER, ""]  # by negative index
    decisions, confirmed = known.decisions()
    files = []
    for row, image in enumerate(known.rows.images.tolist()):
        if decisions[row] == UNKNOWN or (which == "confirmed" and not confirmed[row]):
            continue
        label, stranger = labels[decisions[row]], float(known.stranger[row])
        chance = stranger if label == STRANGER else float(known.sure[row])
        if confirmed[row]:
            chance, stranger = 1.0, float(label == STRANGER)
        source: Literal["confirmed", "guessed"] = "confirmed" if confirmed[row] else "guessed"
        for item in pile.present(image):
            file, digest, seen = item.shown, pile.digest_of[image], pile.store.files[item.shown]
            name = pile.shown(file) if item.of_pile else ""
            files.append(DecidedFile(file, label, chance, stranger, source, name, digest, seen))
    return sorted(files)


Writer = Callable[[Sequence[DecidedFile], Sequence[str]], str]
"""Decided files and the names of all classes -> the text of a table."""


def labels_csv(files: Sequence[DecidedFile], classes: Sequence[str]) -> str:
    """path, label, probability, stranger_probability, source; `classify --labeled` reads it, too."""
    rows = (
        (f.file, f.label, round(f.probability, 4), round(f.stranger, 4), f.source) for f in files
    )
    return csv_table(("path", "label", "probability", "stranger_probability", "source"), rows)


def metadata_csv(files: Sequence[DecidedFile], classes: Sequence[str]) -> str:
    """file_name, label: for Hugging Face's ImageFolder, beside the images of the pile, without strangers."""
    rows = ((f.name, f.label) for f in files if f.name and f.label != STRANGER)
    return csv_table(("file_name", "label"), rows)


def coco_json(files: Sequence[DecidedFile], classes: Sequence[str]) -> str:
    """Images, categories, and the class of each image, as COCO Camera Traps has them: without boxes."""
    numbers = {name: number for number, name in enumerate(classes, 1)}
    of_pile = list(enumerate((f for f in files if f.name), 1))
    annotations = [
        {"id": n, "image_id": n, "category_id": numbers[f.label], "score": round(f.probability, 4)}
        for n, f in of_pile
        if f.label != STRANGER
    ]
    content = {
        "info": {"description": "Labels by semishot"},
        "categories": [{"id": number, "name": name} for name, number in numbers.items()],
        "images": [{"id": n, "file_name": f.name} for n, f in of_pile],
        "annotations": annotations,
    }
    return json.dumps(content, indent=1)


def observations_csv(files: Sequence[DecidedFile], classes: Sequence[str]) -> str:
    """Observations of Camtrap DP 1.0: folders are deployments, files are media, at the time of the file."""
    now, columns = datetime.now().astimezone().isoformat(timespec="seconds"), CAMTRAP.split()
    rows = []
    for f in (f for f in files if f.name):
        time = datetime.fromtimestamp(f.seen.changed / 1e9).astimezone()
        start, known = time.isoformat(timespec="seconds"), f.source == "confirmed"
        filled = {
            "observationID": f.name,
            "deploymentID": PurePath(f.name).parent.as_posix(),
            "mediaID": f.name,
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
        rows.append([filled.get(column, "") for column in columns])
    return csv_table(columns, rows)


TABLES: dict[str, Writer] = {
    "labels.csv": labels_csv,
    "metadata.csv": metadata_csv,
    "coco.json": coco_json,
    "observations.csv": observations_csv,
}


def write_table(session: LabelingSession, name: str, which: Which) -> bytes:
    """Write a table to OUT; its text."""
    known = session.caught_up()
    files = decided_files(session.pile, known, which)
    text = csv_bytes(TABLES[name](files, list(known.state.classes.values())))
    write_whole(session.pile.request.folder / name, text)
    return text


def write_keywords(session: LabelingSession, which: Which) -> tuple[Path, int]:
    """OUT/keywords: an XMP sidecar for each image of a class, in the folders of the pile. Originals stay."""
    out, files = (
        session.pile.request.folder,
        decided_files(session.pile, session.caught_up(), which),
    )
    files = [f for f in files if f.name and f.label != STRANGER]
    with Lock(out / LOCK), whole_folder(out / KEYWORDS) as folder:
        for f in files:
            write_whole(folder / f"{f.name}.xmp", SIDECAR.format(html.escape(f.label)))
    return out / KEYWORDS, len(files)


def wanted_files(session: LabelingSession, how: How, which: Which) -> tuple[list[Wanted], int]:
    """Every file of the pile that is sorted, and how many are links, or behind links, and are not moved."""
    pile, files = session.pile, decided_files(session.pile, session.caught_up(), which)
    wanted = [Wanted(Path(f.file), f.label, f.digest.hex()) for f in files if f.name]
    movable = [each for each in wanted if not is_linked(each.source, pile.request.pile)]
    return (movable, len(wanted) - len(movable)) if how == "move" else (wanted, 0)


def _version(wanted: Sequence[Wanted]) -> int:
    """Tells this plan from others."""
    return zlib.crc32(repr(wanted).encode("utf-8", "surrogatepass"))


def shown_plan(session: LabelingSession, how: How, which: Which) -> dict[str, Any]:
    """What sorting would do, for the page, and the sorting that is in OUT, if there is one."""
    request, store = session.pile.request, session.store
    wanted, links = wanted_files(session, how, which)
    names = class_folders(file.label for file in wanted)
    in_pile = sum(item.of_pile for item in session.pile.listed.values())
    sorting = read_journal(request.folder)
    return {
        "folders": dict(sorted(Counter(names[file.label] for file in wanted).items())),
        "left": max(0, in_pile - len(wanted) - links),
        "links": links,
        "files": len(wanted),
        "size": decimal(sum(store.files[str(file.source)].size for file in wanted)),
        "free": decimal(shutil.disk_usage(request.folder).free),
        "out": str(real_path(request.folder) / SORTED),
        "pile": str(real_path(request.pile)),
        "sorting": sorting
        and {"how": sorting.how, "files": len(sorting.steps), "done": sorting.done},
        "command": undo_command(request.folder),
        "version": _version(wanted),
    }


def apply(
    session: LabelingSession, how: How, which: Which, shown: int | None = None
) -> tuple[int, list[str]]:
    """Sort the files; how many were sorted, and which could not be, and why.

    `shown` is the version of the plan that a person has seen: nothing else is done.
    """
    out, pile = session.pile.request.folder, session.pile.request.pile
    session.store.check_present()
    with Lock(out / LOCK):
        left_alone, sorting = list[str](), read_journal(out)
        if sorting is not None and sorting.how != how:
            raise InputError(
                f"{out / SORTED} was sorted by {sorting.how}: choose that to sort it again, or undo it"
            )
        if sorting is None or sorting.done:  # else it was interrupted
            wanted, _ = wanted_files(session, how, which)
            if shown not in (None, _version(wanted)):
                raise ConflictError(
                    "there are new answers or files since then; this is the plan now"
                )
            sorting, left_alone = plan(out, how, wanted, pile)
            write_journal(sorting)
        outcome = move_files.complete(sorting)
    session.pile.look_again.set()
    return outcome.count, [*left_alone, *outcome.problems]


def save_model(session: LabelingSession) -> Path:
    """OUT/model, for `semishot predict` and `export`, as `classify` leaves it."""
    from semishot.estimator.fitted_model import fit_default
    from semishot.sorter.out_folder import SAVED_MODEL, write_saved_model

    known, pile = session.caught_up(), session.pile
    classes, learner = known.state.classes, known.rows.learner
    class_features = {classes[n]: pile.names[n] for n in classes.keys() & pile.names.keys()}
    if learner is None or pile.opened is None or not known.learned:
        raise InputError("a model needs a labeled image; label one first")
    labels = np.array([*classes.values(), -2, -1], object)[known.answers]  # by negative index
    reject, out = known.state.reject or "auto", pile.request.folder
    classifier, _ = fit_default(learner.features, labels, reject, class_features)
    with Lock(out / LOCK):
        write_saved_model(out, pile.opened[0], classifier)
    return out / SAVED_MODEL
