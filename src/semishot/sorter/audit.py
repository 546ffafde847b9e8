"""An audit: a random sample of what is not yet confirmed, judged by the user, bounds what is right.

The claim is about the decisions that an audit began with. They are kept with the answers, and images are
looked at in an order that a seed gives, so an audit goes on after a kill. What the user corrects on the way,
in this order or not, is right from then on. What was decided anew since, or is new in the pile, counts as
wrong, so the bound also holds for the pile as it is now. Bounds for classes hold each by itself.
"""

import secrets
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from semishot.errors import InputError, counted, printable
from semishot.estimator.audit import CONFIDENCE, audit_order, most_wrong
from semishot.sorter.label_events import NONE, BeginAudit, GiveAnswers, LabelState, RuleOut
from semishot.sorter.label_tables import label_in, read_table, written_path
from semishot.sorter.labels import LabelStore, open_store
from semishot.sorter.listing import STRANGER
from semishot.sorter.moving.move_files import LOCK
from semishot.sorter.out_folder import AUDIT, DATABASE, PREDICTIONS, RESULT
from semishot.sorter.predictions import CORRECT, DECISION, LABELED, csv_table, write_text
from semishot.system.files import read_json, real_place, write_json
from semishot.system.locks import Lock

ENOUGH = 10
"""Images of a class that were looked at, from which on it has a bound of its own."""
RIGHT, WRONG = "right", "wrong"
"""What to write into the column `correct`, beside the name of the right class."""


@dataclass(frozen=True)
class Looked:
    """Decisions of one kind, as the audit began: how many, looked at, wrong among these, right at least."""

    decisions: int
    looked_at: int
    wrong: int
    right_at_least: int


@dataclass(frozen=True)
class AuditResult:
    """What an audit has shown so far."""

    pile: int
    """Images, those with an answer included."""
    unconfirmed: int
    """Images without an answer when the audit began: the sample is drawn from them."""
    looked_at: int
    wrong: int
    """Of those looked at."""
    changed: int
    """Images without an answer that are decided otherwise than they were, or are new."""
    right_at_least: int
    """Images of the pile."""
    confidence: float = CONFIDENCE
    kinds: dict[str, Looked] = field(default_factory=dict)
    """By the class that was decided, or `stranger`, where enough were looked at."""

    @property
    def share(self) -> float:
        return self.right_at_least / self.pile if self.pile else 0.0

    def line(self) -> str:
        """The certificate, in words."""
        if not self.looked_at:
            return "Nothing has been looked at yet."
        changed = (
            f"; {counted(self.changed, 'decision')} changed since it began, and counted as wrong"
        )
        return (
            f"At least {_percent(self.share)} of the pile is right, with {self.confidence:.0%} confidence: "
            f"{counted(self.looked_at, 'image')} looked at, {self.wrong:,} wrong"
            f"{changed if self.changed else ''}."
        )

    def lines(self) -> list[str]:
        kinds = [
            f"  {printable(name)}: at least {_percent(kind.right_at_least / kind.decisions)} of "
            f"{kind.decisions:,} were decided right; {kind.looked_at:,} looked at, {kind.wrong:,} wrong"
            for name, kind in self.kinds.items()
        ]
        return [self.line(), *kinds]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "share": round(self.share, 4)}


def _percent(share: float) -> str:
    """Never more than it is."""
    thousandths = int(share * 1000 + 1e-9)
    return f"{thousandths / 10:.1f} %" if 990 <= thousandths < 1000 else f"{thousandths // 10} %"


def audit_event(decisions: Mapping[int, int]) -> BeginAudit:
    """The event that begins an audit of these decisions: image -> class, or NONE."""
    seed = secrets.randbelow(2**31 - 1) + 1
    return BeginAudit(seed, [(value, [image]) for image, value in decisions.items()])


def judged(state: LabelState) -> dict[int, bool | None]:
    """The images of the audit in its order, and whether the decision was right, if the user has said so.

    Answering with the decision says right. Another answer, or `not` this class, says wrong.
    """
    if (audit := state.audit) is None:
        return {}
    verdicts = dict[int, bool | None]()
    for image in audit_order([*audit.decisions], audit.seed).tolist():
        decision, answer = audit.decisions[image], state.answers.get(image)
        verdicts[image] = None if answer is None else answer == decision
        if answer is None and decision in state.excluded.get(image, ()):
            verdicts[image] = False
    return verdicts


def to_look_at(state: LabelState) -> list[int]:
    """The images to judge, in the order of the audit."""
    return [image for image, right in judged(state).items() if right is None]


def audit_result(state: LabelState, decisions: Mapping[int, int]) -> AuditResult | None:
    """What the audit has shown, for the pile as it is now: image -> class, or NONE, for all its images.

    Only the answers up to the first image that is not judged are a random sample. None: no audit was begun.
    """
    if (audit := state.audit) is None:
        return None
    verdicts, of_kind = judged(state), defaultdict[int, list[int]](list)
    sample = set(takewhile(lambda image: verdicts[image] is not None, verdicts))
    for image in verdicts:
        of_kind[audit.decisions[image]].append(image)

    def looked(images: Collection[int]) -> Looked:
        """What is known of these images beyond the sample counts, too."""
        known = [verdicts[image] for image in images]
        seen = [verdicts[image] for image in images if image in sample]
        wrong = seen.count(False)
        least = max(len(known) - most_wrong(len(known), len(seen), wrong), known.count(True))
        return Looked(len(known), len(seen), wrong, min(least, len(known) - known.count(False)))

    whole = looked(verdicts)
    kinds = {
        state.name_of(kind): looked(of_kind[kind])
        for kind in sorted(of_kind, key=lambda kind: (kind == NONE, kind))
    }
    corrected = sum(verdicts[image] is False for image in verdicts if image in state.answers)
    changed = sum(
        value != audit.decisions.get(image) and verdicts.get(image) is None
        for image, value in decisions.items()
        if image not in state.answers
    )
    left = whole.decisions - whole.right_at_least - corrected
    return AuditResult(
        pile=len(decisions),
        unconfirmed=whole.decisions,
        looked_at=whole.looked_at,
        wrong=whole.wrong,
        changed=changed,
        right_at_least=max(0, len(decisions) - left - changed),
        kinds={name: kind for name, kind in kinds.items() if kind.looked_at >= ENOUGH},
    )


# The command


def audit(out: Path, images: int = 60, again: bool = False) -> tuple[AuditResult, list[list[str]]]:
    """Begin an audit of OUT, or take in the answers of OUT/audit.csv.

    Returns what it has shown, which is also in OUT/result.json, and the images to judge: path and decision.
    """
    if not (out / PREDICTIONS).exists():
        raise InputError(
            f"{out} has no {PREDICTIONS}: run `semishot classify`, or see Check of `semishot label`"
        )
    if not (out / DATABASE).exists():
        raise InputError(f"{out} was made from features: there are no images to look at")
    with Lock(out / LOCK), closing(open_store(out)) as store:
        rows = _known_rows(store, out / PREDICTIONS, ("path", "label", DECISION))
        decisions = {image: _decision(store, row) for image, row in rows.items()}
        if not decisions:
            raise InputError(
                f"no image of {out / PREDICTIONS} is known in {DATABASE}: run audit in the folder where "
                "classify was run"
            )
        if again or store.state.audit is None:
            store.add(audit_event(decisions))
        elif (out / AUDIT).exists():
            _take_in(store, _known_rows(store, out / AUDIT, ("path", CORRECT)))
        result, begun = audit_result(store.state, decisions), store.state.audit
        assert result is not None
        assert begun is not None
        waiting = [image for image in to_look_at(store.state) if image in rows]
        asked = [
            [rows[image]["path"], store.state.name_of(begun.decisions[image])]
            for image in waiting[: max(0, images - result.looked_at)]
        ]
        write_text(out / AUDIT, csv_table(("path", "label", CORRECT), [[*a, ""] for a in asked]))
        before = read_json(out / RESULT) if (out / RESULT).exists() else {}
        write_json(out / RESULT, {**before, "audit": result.as_json()})
    return result, asked


def _known_rows(
    store: LabelStore, table: Path, columns: Collection[str]
) -> dict[int, dict[str, str]]:
    """Image -> the cells of its row, of the images that are known and not labeled."""
    known = dict[int, dict[str, str]]()
    for _, row in read_table(table, columns, "run classify, and audit again"):
        row["path"] = written_path(row["path"])
        seen = store.files.get(str(real_place(Path(row["path"]))))
        if seen is not None and row.get(DECISION) != LABELED:
            known[seen.image] = row
    return known


def _decision(store: LabelStore, row: Mapping[str, str]) -> int:
    """The class, or NONE, that a row of predictions.csv names."""
    if (value := store.number_of(label := label_in(row["label"]))) is None:
        raise InputError(f"{row['path']}: no class {label}; run classify again")
    return value


def _take_in(store: LabelStore, rows: Mapping[int, Mapping[str, str]]) -> None:
    """What the user has written into audit.csv becomes answers."""
    assert store.state.audit is not None
    decisions, events = store.state.audit.decisions, list[GiveAnswers | RuleOut]()
    for image in [image for image in rows if image in decisions]:
        written = label_in(rows[image][CORRECT])
        value = decisions[image] if written.casefold() == RIGHT else store.number_of(written)
        if written.casefold() == WRONG:
            events.append(RuleOut(decisions[image], [image]))
        elif value is not None:
            events.append(GiveAnswers([(value, [image])]))
        elif written:
            raise InputError(
                f"{rows[image]['path']}: write {RIGHT}, {WRONG}, {STRANGER} or the name of a class into the "
                f"column {CORRECT}, not {written}"
            )
    for event in events:
        store.add(event)
