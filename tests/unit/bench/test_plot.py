import xml.etree.ElementTree as ElementTree

import pytest

from bench.plot import Axis, lines


def test_a_power_of_ten_is_the_same_distance_everywhere() -> None:
    axis = Axis([20, 5000], start=100, end=400)
    assert axis.ticks == [10, 100, 1000, 10_000]
    assert [round(axis.place(tick)) for tick in axis.ticks] == [100, 200, 300, 400]


def test_a_plot_is_an_image_with_a_line_for_each_server() -> None:
    drawn = lines({"nsqd-py": [(1, 10), (10, 20)], "a <b>": [(1, 0), (10, 5)]}, "connections", "messages a second")
    svg = ElementTree.fromstring(drawn)
    names = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"nsqd-py", "a <b>", "connections", "messages a second"} <= set(names)
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}polyline"))) == 2
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}circle"))) == 3  # 0 has no place on a logarithmic axis


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing"):
        lines({"nsqd-py": []}, "", "")
