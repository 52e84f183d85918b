"""Charts as plain data: axes with ticks, and marks in pixels for a template to draw.

Colours are classes of the style sheet, so that a chart follows its page into the dark.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ennopt.network import Array

Bytes = npt.NDArray[np.uint8]

WIDTH, HEIGHT = 340, 216
"""Of a chart, in pixels: it fits a phone as it is, and letters keep their size."""

LEFT, RIGHT, TOP, BOTTOM = 50, 12, 12, 38
LABEL = 16
"""Room around the drawing for ticks and labels, and the part that a label takes."""

RAMP = (
    (0.00, (52, 27, 95)),
    (0.25, (58, 82, 139)),
    (0.50, (36, 138, 141)),
    (0.75, (105, 192, 108)),
    (1.00, (250, 226, 92)),
)
"""Colours of a surface, from its smallest value to its largest."""

FAINT = 56
"""Opacity of points that are not allowed, of 255."""


def compact(number: float, digits: int = 4) -> str:
    """A number in few characters.

    Examples
    --------
    >>> compact(1145.0, 7), compact(0.000123), compact(-2.50), compact(1234567.0)
    ('1,145', '0.000123', '-2.5', '1.235e+06')
    """
    if not math.isfinite(number):
        return "unknown"
    text = f"{number + 0.0:.{digits}g}"
    return text if "e" in text else f"{float(text):,.{len(text.partition('.')[2])}f}"


@dataclass(frozen=True, slots=True)
class Scale:
    """From numbers to pixels, evenly or by logarithm."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, number: float) -> float:
        """Where a number is; numbers beyond the ends are drawn at the ends."""
        low, high, at = self.low, self.high, min(max(number, self.low), self.high)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        share = (at - low) / (high - low) if high > low else 0.5
        return round(self.start + share * (self.end - self.start), 2)

    def ticks(self, most: int = 5) -> list[tuple[float, str]]:
        """Places in pixels with round numbers.

        Examples
        --------
        >>> [text for _, text in Scale(0.0, 23.0, 0, 100).ticks()]
        ['0', '5', '10', '15', '20']
        """
        if self.log:
            first, last = (
                math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            )  # fmt: skip
            each = max(1, math.ceil((last - first) / most))
            powers = [10.0**power for power in range(first, last + 1, each)]
            return [(self(power), f"{power:g}") for power in powers]
        if not self.high > self.low:
            return [(self(self.low), compact(self.low))]
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step: float = next(
            s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * 0.999
        )
        begin = math.ceil(self.low / step - 1e-9)
        end = math.floor(self.high / step + 1e-9)
        digits = max(0, -math.floor(math.log10(step) - 1e-9))
        digits += step / 10.0 ** math.floor(math.log10(step) + 1e-9) == 2.5
        tall = max(abs(self.low), abs(self.high)) >= 1e6 or digits > 5
        return [
            (self(k * step), f"{k * step:g}" if tall else f"{k * step:,.{digits}f}")
            for k in range(begin, end + 1)
        ]


@dataclass(slots=True)
class Mark:
    """Something that is drawn: the name of an SVG element and its attributes."""

    tag: str
    attributes: dict[str, Any]
    text: str = ""
    tip: str = ""


@dataclass(slots=True)
class Chart:
    """A drawing with two axes.

    Parameters
    ----------
    title
        What it shows: the heading, and what a screen reader says.
    x, y
        From numbers to pixels.
    x_label
        What is measured from left to right.
    x_ticks, y_ticks
        Where the axes have which numbers, in pixels.
    note
        A line below the drawing.
    """

    title: str
    x: Scale
    y: Scale
    x_label: str = ""
    x_ticks: list[tuple[float, str]] | None = None
    y_ticks: list[tuple[float, str]] | None = None
    note: str = ""
    width: int = WIDTH
    height: int = HEIGHT
    marks: list[Mark] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.x_ticks is None:
            self.x_ticks = self.x.ticks()
        if self.y_ticks is None:
            self.y_ticks = self.y.ticks(4)

    def _add(
        self, tag: str, look: str, *, text: str = "", tip: str = "", **at: Any
    ) -> None:
        attributes = {"class": look} | {k.replace("_", "-"): v for k, v in at.items()}
        self.marks.append(Mark(tag, attributes, text, tip))

    def curve(self, look: str, xs: Iterable[float], ys: Iterable[float]) -> None:
        """A line through points; it breaks where a number is unknown."""
        path, pen = [], "M"
        for x, y in zip(xs, ys, strict=True):
            if not math.isfinite(x + y):
                pen = "M"
                continue
            path.append(f"{pen}{self.x(x):g} {self.y(y):g}")
            pen = "L"
        if path:
            self._add("path", look, d="".join(path))

    def steps(self, look: str, xs: Sequence[float], ys: Sequence[float]) -> None:
        """A line that keeps its height until the next point."""
        across = [x for pair in pairwise(xs) for x in pair]
        self.curve(look, [*across, xs[-1]], [y for y in ys for _ in (0, 1)][:-1])

    def band(self, look: str, xs: Array, low: Array, high: Array) -> None:
        """The area between two curves."""
        there = [f"{self.x(x):g} {self.y(y):g}" for x, y in zip(xs, high, strict=True)]
        back = [f"{self.x(x):g} {self.y(y):g}" for x, y in zip(xs, low, strict=True)]
        self._add("path", look, d=f"M{'L'.join(there + back[::-1])}Z")

    def dot(self, look: str, x: float, y: float, r: float = 2.0, tip: str = "") -> None:
        """A point."""
        self._add("circle", look, cx=self.x(x), cy=self.y(y), r=r, tip=tip)

    def dots(self, look: str, xs: Array, ys: Array, r: float = 1.7) -> None:
        """Many points as one element: a short line with round ends each."""
        path = "".join(
            f"M{self.x(x):g} {self.y(y):g}h0" for x, y in zip(xs, ys, strict=True)
        )
        if path:
            self._add("path", f"dots {look}", d=path, stroke_width=2 * r)

    def bar(
        self,
        look: str,
        left: float,
        right: float,
        low: float,
        high: float,
        tip: str = "",
    ) -> None:
        """A rectangle between numbers."""
        x0, x1, y0, y1 = self.x(left), self.x(right), self.y(low), self.y(high)
        self._add(
            "rect", look, x=min(x0, x1), y=min(y0, y1), tip=tip,
            width=round(abs(x1 - x0), 2), height=round(abs(y1 - y0), 2),
        )  # fmt: skip

    def boxes(self, look: str, xs: Array, ys: Array) -> None:
        """The outlines of rectangles as one element; ends (num_boxes, 2) each."""
        path = "".join(
            f"M{self.x(x0):g} {self.y(y0):g}H{self.x(x1):g}V{self.y(y1):g}"
            f"H{self.x(x0):g}Z"
            for (x0, x1), (y0, y1) in zip(xs.tolist(), ys.tolist(), strict=True)
        )
        self._add("path", look, d=path)

    def upright(self, look: str, x: float, tip: str = "") -> None:
        """A vertical line through the whole drawing."""
        at = self.x(x)
        self._add(
            "line", look, x1=at, x2=at, y1=self.y.start, y2=self.y.end, tip=tip
        )  # fmt: skip

    def level(self, look: str, y: float, tip: str = "") -> None:
        """A horizontal line through the whole drawing."""
        at = self.y(y)
        self._add(
            "line", look, x1=self.x.start, x2=self.x.end, y1=at, y2=at, tip=tip
        )  # fmt: skip

    def words(
        self,
        look: str,
        x: float,
        y: float,
        text: str,
        dx: float = 0,
        dy: float = 0,
        anchor: str = "start",
    ) -> None:
        """A text beside a point."""
        self._add(
            "text", look, x=self.x(x) + dx, y=self.y(y) + dy, text=text,
            text_anchor=anchor,
        )  # fmt: skip

    def picture(self, pixels: Bytes) -> None:
        """An image (rows, columns, 4) that fills the drawing, its last row on top."""
        x0, x1 = sorted((self.x.start, self.x.end))
        y0, y1 = sorted((self.y.start, self.y.end))
        self._add(
            "image", "surface", x=x0, y=y0, width=x1 - x0, height=y1 - y0,
            href=data_url("image/png", png(pixels[::-1])), preserveAspectRatio="none",
        )  # fmt: skip


def framed(
    title: str, xs: tuple[float, float], ys: tuple[float, float], *,
    height: int = HEIGHT, left: int = LEFT, log: bool = False, **more: Any,
) -> Chart:  # fmt: skip
    """An empty chart for numbers of these ranges."""
    bottom = BOTTOM if more.get("x_label") else BOTTOM - LABEL
    return Chart(
        title,
        Scale(*xs, left, WIDTH - RIGHT),
        Scale(*ys, height - bottom, TOP, log),
        height=height,
        **more,
    )


def widened(low: float, high: float, share: float = 0.06) -> tuple[float, float]:
    """A range with some room at both ends, of some length."""
    room = share * (high - low) or share * abs(high) or 1.0
    return low - room, high + room


def data_url(kind: str, content: bytes) -> str:
    """Content as an address, which needs no network."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def png(pixels: Bytes) -> bytes:
    """An image (rows, columns, 4) as a PNG file.

    Examples
    --------
    >>> png(np.zeros((2, 3, 4), np.uint8))[1:4]
    b'PNG'
    """
    rows, columns, _ = pixels.shape
    raw = np.concatenate(
        [np.zeros((rows, 1), np.uint8), pixels.reshape(rows, -1)], axis=1
    )

    def chunk(name: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + check

    head = struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(raw.tobytes(), 9))
        + chunk(b"IEND", b"")
    )


def coloured(shares: Array, opaque: npt.NDArray[np.bool_]) -> Bytes:
    """Pixels for numbers from 0 to 1, faint where they are not `opaque`."""
    places, known = [place for place, _ in RAMP], np.isfinite(shares)
    shares, opaque = np.where(known, shares, 0.0), opaque & known
    channels = [
        np.interp(shares, places, [colour[c] for _, colour in RAMP]) for c in range(3)
    ]
    channels.append(np.where(opaque, 255.0, FAINT))
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def contours(values: Array, level: float) -> list[tuple[float, float, float, float]]:
    """Short lines ``(x, y, x, y)`` in grid steps along which `values` are `level`.

    By marching squares: where the level crosses sides of a cell, linearly.

    Examples
    --------
    >>> contours(np.array([[0.0, 1.0], [0.0, 1.0]]), 0.25)
    [(0.25, 0.0, 0.25, 1.0)]
    """
    above = values > level
    corners = np.stack([above[:-1, :-1], above[:-1, 1:], above[1:, 1:], above[1:, :-1]])
    mixed = np.argwhere(corners.any(axis=0) & ~corners.all(axis=0))
    found = []
    for i, j in mixed.tolist():
        ring = ((i, j), (i, j + 1), (i + 1, j + 1), (i + 1, j))
        crossed = []
        for (a, b), (c, d) in zip(ring, (*ring[1:], ring[0]), strict=True):
            start, end = float(values[a, b]), float(values[c, d])
            if (start > level) != (end > level):
                share = (level - start) / (end - start)
                crossed.append((b + share * (d - b), a + share * (c - a)))
        for one, other in zip(crossed[::2], crossed[1::2], strict=True):
            found.append((*one, *other))
    return found
