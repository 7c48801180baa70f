"""Flame graphs and folded stacks."""

from __future__ import annotations

from xml.etree import ElementTree

from nsqd_py.debug.flame import WIDTH, Stack, draw, folded

SVG = "{http://www.w3.org/2000/svg}"
STACKS: dict[Stack, int] = {("main", "read"): 1, ("main", "write"): 2, ("main",): 1}


def boxes(picture: str) -> dict[str, dict[str, str]]:
    """What is shown when pointing at a box, and the box."""
    groups = ElementTree.fromstring(picture).iter(f"{SVG}g")
    return {group[0].text or "": dict(group[1].attrib) for group in groups}


def test_a_box_is_as_wide_as_its_share() -> None:
    found = boxes(draw(STACKS, "four samples"))
    widths = {name: float(box["width"]) / WIDTH for name, box in found.items()}
    assert widths == {
        "all: 4 samples, 100.0%": 1.0,
        "main: 4 samples, 100.0%": 1.0,
        "read: 1 samples, 25.0%": 0.25,
        "write: 2 samples, 50.0%": 0.5,
    }


def test_what_was_called_stands_on_its_caller_side_by_side() -> None:
    found = {name.partition(":")[0]: box for name, box in boxes(draw(STACKS, "")).items()}
    tops = {name: int(box["y"]) for name, box in found.items()}
    assert tops["all"] > tops["main"] > tops["read"] == tops["write"]
    assert float(found["write"]["x"]) == float(found["read"]["x"]) + float(found["read"]["width"])


def test_names_are_escaped() -> None:
    name = """<script>alert("'&]]>")</script>"""
    picture = draw({(name,): 1}, name)
    assert "<script" not in picture
    assert f"{name}: 1 samples, 100.0%" in boxes(picture)


def test_a_long_name_shows_its_end() -> None:
    texts = [text.text for text in ElementTree.fromstring(draw({("a" * 500 + ".end",): 1}, "")).iter(f"{SVG}text")]
    assert texts[-1] is not None
    assert texts[-1].startswith("…aaa")
    assert texts[-1].endswith(".end")


def test_what_is_too_narrow_to_see_is_left_out() -> None:
    assert len(boxes(draw({("wide",): 1_000_000, ("narrow",): 1}, ""))) == 2


def test_no_samples_are_an_empty_picture() -> None:
    assert boxes(draw({}, "nothing")) == {}


def test_folded_stacks() -> None:
    assert folded(STACKS) == "main 1\nmain;read 1\nmain;write 2\n"
    assert folded({("a;b", "c d\n"): 3}) == "a:b;c_d 3\n"
