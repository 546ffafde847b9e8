"""An audit: a random sample of what is not yet confirmed, judged by the user, bounds what is right.

The claim is about the decisions that an audit began with. They are kept with the answers, and images are
looked at in an order that a seed gives, so an audit goes on after a kill. What the user corrects on the way,
in this order or not, is right from then on. What was decided anew since, or is new in the pile, counts as
wrong, so the bound also holds for the pile as it is now. Bounds for classes hold each by itself.
"""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from semishot.errors import InputError, counted, printable
from semishot.estimator.audit import CONFIDENCE, audit_order, most_wrong
from semishot.sorter.label_events import (
    NONE,
    BeginAudit,
    BegunAudit,
    GiveAnswers,
    LabelState,
    RuleOut,
)
from semishot.sorter.label_tables import is_predictions, label_in, read_table, written_path
from semishot.sorter.labels import DATABASE, LabelStore, open_store
from semishot.sorter.listing import STRANGER
from semishot.sorter.moving.move_files import LOCK
from semishot.sorter.out_folder import AUDIT, PREDICTIONS, RESULT
from semishot.sorter.predictions import (
    CORRECT,
    DECISION,
    LABELED,
    csv_table,
    write_text,
)
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
            f"  {printable(name)}: at least {_percent(one.right_at_least / one.decisions)} of "
            f"{one.decisions:,} were decided right; {one.looked_at:,} looked at, {one.wrong:,} wrong"
            for name, one in self.kinds.items()
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
    return BeginAudit(seed, list(_by_value(decisions).items()))


def _by_value(decisions: Mapping[int, int]) -> dict[int, list[int]]:
    of_value = dict[int, list[int]]()
    for image, value in decisions.items():
        of_value.setdefault(value, []).append(image)
    return of_value


def judged(state: LabelState, audit: BegunAudit, image: int) -> bool | None:
    """Whether the decision of the audit's beginning was right, as far as the user has said so.

    Answering with the decision says right. Another answer, or `not` this class, says wrong.
    """
    decision = audit.decisions[image]
    if (answer := state.answers.get(image)) is not None:
        return answer == decision
    return False if decision in state.excluded.get(image, ()) else None


def to_look_at(state: LabelState) -> Iterator[int]:
    """The images to judge, in the order of the audit."""
    if (audit := state.audit) is not None:
        order = audit_order([*audit.decisions], audit.seed).tolist()
        yield from (image for image in order if judged(state, audit, image) is None)


def audit_result(state: LabelState, decisions: Mapping[int, int]) -> AuditResult | None:
    """What the audit has shown, for the pile as it is now: image -> class, or NONE, for all its images.

    Only the answers up to the first image that is not judged are a random sample. None: no audit was begun.
    """
    if (audit := state.audit) is None:
        return None
    verdicts = {image: judged(state, audit, image) for image in audit.decisions}
    sample = list[int]()
    for image in audit_order([*audit.decisions], audit.seed).tolist():
        if verdicts[image] is None:
            break
        sample.append(image)
    wrong = _looked([*verdicts], sample, verdicts)
    corrected = sum(verdicts[image] is False for image in audit.decisions if image in state.answers)
    changed = sum(
        value != audit.decisions.get(image) and verdicts.get(image) is None
        for image, value in decisions.items()
        if image not in state.answers
    )
    left = wrong.decisions - wrong.right_at_least - corrected
    of_value = sorted(_by_value(audit.decisions).items())
    kinds = {
        state.classes.get(value, STRANGER): _looked(images, sample, verdicts)
        for value, images in sorted(of_value, key=lambda pair: pair[0] == NONE)
    }
    return AuditResult(
        pile=len(decisions),
        unconfirmed=len(verdicts),
        looked_at=wrong.looked_at,
        wrong=wrong.wrong,
        changed=changed,
        right_at_least=max(0, len(decisions) - left - changed),
        kinds={name: one for name, one in kinds.items() if one.looked_at >= ENOUGH},
    )


def _looked(images: list[int], sample: list[int], verdicts: Mapping[int, bool | None]) -> Looked:
    """The bound for these images; what is known of them beyond the sample counts, too."""
    among = set(images)
    own = [verdicts[image] for image in sample if image in among]
    found = sum(verdict is False for verdict in own)
    right, not_right = (sum(verdicts[image] is what for image in images) for what in (True, False))
    least = max(len(images) - most_wrong(len(images), len(own), found), right)
    return Looked(len(images), len(own), found, min(least, len(images) - not_right))


# The command


def audit(out: Path, images: int = 60, again: bool = False) -> tuple[AuditResult, list[list[str]]]:
    """Begin an audit of OUT, or take in the answers of OUT/audit.csv.

    Returns what it has shown, which is also in OUT/result.json, and the images to judge: path and decision.
    """
    if not (out / PREDICTIONS).exists():
        where = (
            "its page, opened by `semishot label`" if (out / DATABASE).exists() else "`classify`"
        )
        raise InputError(f"{out} has no {PREDICTIONS}: the audit begins in {where}")
    if not (out / DATABASE).exists():
        raise InputError(f"{out} was made from features: there are no images to look at")
    with Lock(out / LOCK), closing(open_store(out)) as store:
        decisions, path_of = _decisions(store, out / PREDICTIONS)
        if again or store.state.audit is None:
            store.add(audit_event(decisions))
        else:
            _take_in(store, out / AUDIT)
        state = store.state
        result = audit_result(state, decisions)
        assert result is not None
        assert state.audit is not None
        waiting = (image for image in to_look_at(state) if image in path_of)
        rows = [
            [path_of[image], state.classes.get(state.audit.decisions[image], STRANGER)]
            for image in islice(waiting, max(0, images - result.looked_at))
        ]
        write_text(out / AUDIT, csv_table(("path", "label", CORRECT), [[*r, ""] for r in rows]))
        before = read_json(out / RESULT) if (out / RESULT).exists() else {}
        write_json(out / RESULT, {**before, "audit": result.as_json()})
    return result, rows


def _decisions(store: LabelStore, table: Path) -> tuple[dict[int, int], dict[int, str]]:
    """The decision for each image in predictions.csv, and a path of it."""
    rows = read_table(table)
    if not is_predictions(rows):
        raise InputError(f"{table} is not a table of predictions: run classify again")
    decisions, path_of = dict[int, int](), dict[int, str]()
    for line, row in rows.rows:
        name = written_path(row["path"])
        seen = store.files.get(str(real_place(Path(name))))
        if row[DECISION] == LABELED or seen is None:
            continue
        value = store.number_of(label := label_in(row["label"]))
        if value is None:
            raise InputError(f"{table}, line {line}: no class {label}; run classify again")
        decisions[seen.image], path_of[seen.image] = value, name
    if not decisions:
        raise InputError(
            f"no image of {table} is known in {DATABASE}: run audit in the folder where classify was run"
        )
    return decisions, path_of


def _take_in(store: LabelStore, table: Path) -> None:
    """What the user has written into audit.csv becomes answers."""
    audit = store.state.audit
    if not table.exists() or audit is None:
        return
    answers, wrong = dict[int, list[int]](), dict[int, list[int]]()
    for line, row in read_table(table).rows:
        written = label_in(row.get(CORRECT, ""))
        seen = store.files.get(str(real_place(Path(written_path(row["path"])))))
        if not written or seen is None or seen.image not in audit.decisions:
            continue
        decision = audit.decisions[seen.image]
        value = decision if written.casefold() == RIGHT else store.number_of(written)
        if written.casefold() == WRONG:
            wrong.setdefault(decision, []).append(seen.image)
        elif value is None:
            raise InputError(
                f"{table}, line {line}: write {RIGHT}, {WRONG}, {STRANGER} or the name of a class into the "
                f"column {CORRECT}, not {written}"
            )
        else:
            answers.setdefault(value, []).append(seen.image)
    if answers:
        store.add(GiveAnswers(list(answers.items())))
    for decision, images in wrong.items():
        store.add(RuleOut(decision, images))
