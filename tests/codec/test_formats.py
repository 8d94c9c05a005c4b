"""docs/dev/formats.md is what the codec says, and enough to write a reader from."""

import importlib.machinery
import importlib.util
import pathlib
import re
import struct

import msgspec
import pytest
import xxhash

from topics.codec.log.layout import Ext, Flag, FrameType

ROOT = pathlib.Path(__file__).parent.parent.parent


def generator():
    loader = importlib.machinery.SourceFileLoader("formats_page", str(ROOT / "ci" / "formats"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@pytest.mark.rule("T0.4")
def test_the_page_is_what_the_codec_says():
    assert (ROOT / "docs" / "dev" / "formats.md").read_text(encoding="utf-8") == generator().page(), (
        "run ci/formats"
    )


@pytest.mark.rule("T0.4")
def test_the_page_names_every_type_flag_and_extension():
    text = (ROOT / "docs" / "dev" / "formats.md").read_text(encoding="utf-8")
    for member in (*FrameType, *Flag, *Ext):
        assert f"| {member.value} | {member.name} |" in text


FORMS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q"}


def dumped(text, name):
    """The bytes of an example."""
    dump = re.search(rf"### {name}\.bin.*?```\n(.*?)\n```", text, re.DOTALL)[1]
    return bytes.fromhex("".join(line[6:53] for line in dump.splitlines()))


@pytest.mark.rule("T0.1", "T0.4", "T5.3")
def test_a_stranger_reads_a_segment_with_the_page_alone():
    text = (ROOT / "docs" / "dev" / "formats.md").read_text(encoding="utf-8")
    data, idx = dumped(text, "segment-data"), dumped(text, "segment-idx")
    section = text.split("### .idx\n")[1].split("### .col")[0]
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \| (\w+) \|", section, re.MULTILINE)
    entry = struct.Struct("<" + "".join(FORMS.get(form, f"{size}s") for _, size, _, form in rows[:5]))
    trailer = struct.Struct("<" + "".join(FORMS[form] for _, _, _, form in rows[5:]))
    covered = bytearray(idx[: -trailer.size])
    entries = list(entry.iter_unpack(bytes(covered)))
    for at in range(16, len(covered), entry.size):
        covered[at] &= ~(64 | 128)

    assert trailer.unpack(idx[-trailer.size :]) == (len(entries), xxhash.xxh3_64_intdigest(bytes(covered)))
    ends = {at + length: flags for at, length, _, flags, _ in entries if length}
    assert {end: data[end] for end in ends} == {
        end: 0xD5 if flags & 128 else 0 for end, flags in ends.items()
    }
    for seq, (at, length, ts, _, _) in enumerate(entries, 1):
        if length:
            assert struct.unpack_from("<QQ", data, at + 14) == (seq, ts)


KINDS = {"int": int, "str": str, "bin": bytes, "bool": bool, "any": object, "map": dict}


def check_form(structs, form, value):
    """`value` is what the page says of `form`; tuples of the page are taken one level deep."""
    if form.startswith("nil or "):
        if value is not None:
            check_form(structs, form.removeprefix("nil or "), value)
    elif form.startswith("array of ["):
        forms = (
            form.removeprefix("array of [").removesuffix("]").split(", ", len(value[0]) - 1 if value else 0)
        )
        for item in value:
            assert len(item) == len(forms)
            for one, element in zip(forms, item, strict=True):
                check_form(structs, one, element)
    elif form.startswith("array of "):
        assert type(value) is list
        for item in value:
            check_form(structs, form.removeprefix("array of "), item)
    elif form in structs:
        assert len(value) == len(structs[form])
        for one, element in zip(structs[form], value, strict=True):
            check_form(structs, one, element)
    else:
        assert isinstance(value, KINDS[form.split()[0]]), (form, value)


@pytest.mark.rule("T0.1", "T0.4", "T5.18")
def test_a_stranger_reads_a_snapshot_with_the_page_alone():
    text = (ROOT / "docs" / "dev" / "formats.md").read_text(encoding="utf-8")
    section = text.split("### The body of a snapshot\n")[1].split("\n## ")[0]
    structs, fields = {}, {}
    for part in section.split("\n#### ")[1:]:
        name = part.split("\n", 1)[0]
        rows = re.findall(r"^\| (\w+) \| ([^|]+) \|", part, re.MULTILINE)[1:]
        fields[name], structs[name] = [row[0] for row in rows], [row[1] for row in rows]
    snapshot = dumped(text, "snapshot-body")
    (size,) = struct.unpack_from("<Q", snapshot, 24)
    body = msgspec.msgpack.decode(snapshot[32 : 32 + size])

    check_form(structs, "Snapshot", body)
    topics = [dict(zip(fields["TopicImage"], values, strict=True)) for values in body[0][4]]
    assert [(topic["name"], topic["head_seq"]) for topic in topics] == [
        ("orders", 66),
        ("news", 4),
        ("capped", 3),
        ("jobs", 2),
    ]
    slots = dict(zip(fields["Slots"], topics[0]["slots"][0], strict=True))
    assert (slots["tags"], struct.unpack("<2I", slots["tag_numbers"])) == ([b"red"], (0, 1))
    assert list(slots["flags"]) == [1 + 32, 1 + 8 + 16]


@pytest.mark.rule("T0.1", "T0.4")
def test_a_stranger_reads_the_example_with_the_page_alone():
    text = (ROOT / "docs" / "dev" / "formats.md").read_text(encoding="utf-8")
    body = dumped(text, "wal-file")
    section = text.split("## Frame\n")[1].split("\n#")[0]
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \| (u\d+) \|", section, re.MULTILINE)
    head = struct.Struct("<" + "".join(FORMS[form] for _, _, _, form in rows))
    names = [name for _, _, name, _ in rows]
    at, seen = 48, []
    while struct.unpack_from("<I", body, at)[0]:
        frame = dict(zip(names, head.unpack_from(body, at), strict=True))
        end = at + 4 + frame["frame_len"]
        assert struct.unpack_from("<Q", body, end - 8)[0] == xxhash.xxh3_64_intdigest(body[at + 4 : end - 8])
        seen.append((frame["type"], frame["seq"]))
        at = end

    assert not any(body[at:])
    assert seen == [(2, 0), (1, 1), (1, 2), (1, 3), (12, 0), (1, 4), (18, 0), (1, 5), (6, 0), (11, 0)]
