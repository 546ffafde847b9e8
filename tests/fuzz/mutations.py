"""Valid files made invalid: bytes flipped, cut, spliced; fields of JSON and headers given odd values."""

import copy
import io
import json
import struct
import warnings
import zipfile
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Mutation = Callable[[bytes, Random, Sequence[bytes]], bytes]

HUGE = [0, 1, 127, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1]
ODD_TEXTS = [
    *(
        "",
        " ",
        "-",
        "--",
        "=1+1",
        "..",
        "../../x",
        "/etc/passwd",
        "a\nb",
        "\x1b[2J",
        "\0",
        "'\"",
        "%s",
    ),
    *("<script>alert(1)</script>", "\u202e", "\ud800", "é" * 300, "x" * 5000, "NaN", "-1", "1e999"),
    *("pretrained:../omniglot", "timm:hf-hub:a/b", "file:///etc/passwd", "http://localhost", "nul"),
    *("9" * 5000, "0x10", "１", "true", "None", "[]", "{}", "cuda:99999999999", "meta"),
]
ODD_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e308, -1e308, 10**18, 10**30, 10**400),
    *(
        float("nan"),
        float("inf"),
        float("-inf"),
        [],
        {},
        [[]],
        [None],
        {"a": 1},
        [1, "a"],
        [[1, 2], [3]],
    ),
    *ODD_TEXTS,
]
DEEP = b"[" * 100_000


def damaged(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """Bytes flipped, cut, repeated, spliced, or a number among them made huge."""
    held = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        place = rng.randrange(len(held) + 1)
        match rng.randrange(7):
            case 0 if held:
                held[place % len(held)] ^= 1 << rng.randrange(8)
            case 1 if held:
                held[place % len(held)] = rng.randrange(256)
            case 2:
                del held[place:]
            case 3:
                del held[place : place + rng.randrange(1, 40)]
            case 4:
                held[place:place] = held[: rng.randrange(1, 60)]
            case 5:
                other = rng.choice(others)
                held[place:] = other[rng.randrange(len(other) + 1) :]
            case _:
                code = rng.choice(("<B", "<H", ">H", "<I", ">I", "<Q", ">Q"))
                size = struct.calcsize(code)
                value = rng.choice(HUGE) & (2 ** (8 * size) - 1)
                held[place : place + size] = struct.pack(code, value)
    return bytes(held)


def odd_json(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """A value of a JSON text replaced, taken away, or repeated; now and then bytes."""
    if rng.random() < 0.2:
        return DEEP if rng.random() < 0.05 else damaged(data, rng, others)
    try:
        held = json.loads(data)
    except (ValueError, RecursionError):
        return damaged(data, rng, others)
    for _ in range(rng.choice((1, 1, 2, 4))):
        held = changed(held, rng)
    return json.dumps(held).encode()


def odd_json_lines(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    lines[place] = odd_json(lines[place], rng, others)
    return b"\n".join(lines)


def changed(value: Any, rng: Random) -> Any:
    """The value with one thing in it changed; JSON in a string is looked into as well."""
    if isinstance(value, str) and value[:1] in ("{", "[") and rng.random() < 0.95:
        try:
            return json.dumps(changed(json.loads(value), rng))
        except (ValueError, RecursionError):
            return odd_value(rng)
    if not isinstance(value, dict | list) or not value or rng.random() < 0.08:
        return odd_value(rng)
    places = list(value) if isinstance(value, dict) else list(range(len(value)))
    place = rng.choice(places)
    choice = rng.random()
    if choice < 0.08:
        del value[place]
    elif choice < 0.14:
        if isinstance(value, list):
            value.insert(place, value[place])
        else:
            value[rng.choice(ODD_TEXTS)] = value[place]
    else:
        value[place] = changed(value[place], rng)
    return value


def odd_value(rng: Random) -> Any:
    if rng.random() < 0.2:
        return rng.choice((-1, 1)) * rng.choice(HUGE)
    return copy.deepcopy(rng.choice(ODD_VALUES))  # it may be changed further


def odd_header(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """A safetensors file whose JSON header says something odd, or bytes changed."""
    size = int.from_bytes(data[:8], "little")
    if rng.random() < 0.2 or not 0 < size <= len(data):
        return damaged(data, rng, others)
    header = data[8 : 8 + size]
    try:
        said = json.loads(header)
        said["__metadata__"] = changed(said["__metadata__"], rng)
        meta = json.dumps(said).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        meta = header
    match rng.randrange(4):
        case 0:
            header = odd_json(header, rng, others)
        case 1:
            return data[: 8 + size] + damaged(data[8 + size :], rng, others)[: len(data) - 8 - size]
        case _:
            header = meta
    length = len(header) if rng.random() < 0.95 else rng.choice(HUGE)
    return length.to_bytes(8, "little") + header + data[8 + size :]


def odd_cells(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """A cell of a CSV replaced; now and then bytes."""
    if rng.random() < 0.4:
        return damaged(data, rng, others)
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    cells = lines[place].split(b",")
    cells[rng.randrange(len(cells))] = text(rng)
    lines[place] = b",".join(cells)
    return b"\n".join(lines)


def odd_words(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """One word of a line of words, by NUL: replaced, dropped, repeated, or taken from another line."""
    words = data.split(b"\0")
    for _ in range(rng.choice((1, 1, 2))):
        place = rng.randrange(len(words))
        match rng.randrange(8):
            case 0:
                del words[place]
            case 1:
                words.insert(place, rng.choice(rng.choice(others).split(b"\0")))
            case 2:
                words[place] = rng.choice(rng.choice(others).split(b"\0"))
            case _:
                words[place] = text(rng).replace(b"\0", b"")
        if not words:
            break
    return b"\0".join(words)


def text(rng: Random) -> bytes:
    chosen = (
        str(rng.choice(HUGE) * rng.choice((1, -1))) if rng.random() < 0.2 else rng.choice(ODD_TEXTS)
    )
    return chosen.encode("utf-8", "surrogatepass")


def odd_npy(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """An .npy file, or one inside a zip, whose header names another type, order or shape."""
    pieces = [
        b"'|u1'",
        b"'<f4'",
        b"'<i8'",
        b"'|O'",
        b"'<U4'",
        b"'<U0'",
        b"[('a','<f4')]",
        b"'V9'",
        b"1",
        b"'",
    ]
    shapes = [
        b"()",
        b"(0,)",
        b"(-1, 4)",
        b"(2,)",
        b"(2, 2, 2)",
        b"(999999999999, 84, 84, 3)",
        b"None",
    ]
    shapes += [b"(" + b"1," * 70 + b")", b"(9223372036854775807, 4)", b"(True, 2)", b"(2.0, 2)"]
    for key, choices in (
        (b"'descr': ", pieces),
        (b"'shape': ", shapes),
        (b"'fortran_order': ", [b"True", b"3"]),
    ):
        start = data.find(key)
        if start >= 0 and rng.random() < 0.4:
            start += len(key)
            end = data.find(b", '" if key != b"'shape': " else b", }", start)
            new = rng.choice(choices)
            if end > start:
                room = data.find(b"\n", end)
                header = data[:start] + new + data[end:room]
                data = header[:room].ljust(room) + data[room:]
    return data if rng.random() < 0.6 else damaged(data, rng, others)


def odd_zip(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """A member of a zip damaged or given another name, sizes that lie; now and then bytes of the zip."""
    if rng.random() < 0.3:
        return damaged(data, rng, others)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as read:
            members = [(info, read.read(info)) for info in read.infolist()]
    except Exception:  # damaged before
        return damaged(data, rng, others)
    chosen = rng.randrange(len(members) or 1)
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as written:
        warnings.simplefilter("ignore")  # two members of one name
        for place, (info, content) in enumerate(members):
            name = info.filename
            if place == chosen and rng.random() < 0.3:
                name = rng.choice(ODD_TEXTS).encode("utf-8", "replace").decode() + rng.choice(
                    ("", name)
                )
            elif place == chosen:
                content = damaged(content, rng, [one for _, one in members])
            written.writestr(name.replace("\0", "")[:60_000] or "x", content, info.compress_type)
    held = file.getvalue()
    if rng.random() < 0.2:  # the sizes of the central directory
        place = held.rfind(b"PK\x01\x02")
        held = (
            held[: place + 20]
            + struct.pack("<II", *rng.choices(HUGE[:8], k=2))
            + held[place + 28 :]
        )
    return held
