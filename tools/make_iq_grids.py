#!/usr/bin/env python3
"""Writes src/format/iq_grids.h: the points that codes of GGUF's IQ1, IQ2 and IQ3 types name.

    make_iq_grids.py > src/format/iq_grids.h && clang-format-19 -i src/format/iq_grids.h

The points are facts of the file format (ggml-common.h of ggml); they are taken from the package gguf (0.19.0), and written here as the
numbers of their coordinates' values, the first coordinate in the lowest bits.
"""

import numpy as np
from gguf import quants

GRIDS = [
    ("IQ2_XXS", "kIq2XxsGrid"),
    ("IQ2_XS", "kIq2XsGrid"),
    ("IQ2_S", "kIq2SGrid"),
    ("IQ3_XXS", "kIq3XxsGrid"),
    ("IQ3_S", "kIq3SGrid"),
    ("IQ1_S", "kIq1Grid"),
]


def main():
    print("#pragma once")
    print("// The points that codes of the IQ types name (ggml-common.h of ggml, by way of the package gguf 0.19.0): made by")
    print("// tools/make_iq_grids.py. Eight coordinates of two bits each, and of IQ3 four of three bits; the first in the lowest bits.")
    print("#include <array>\n#include <cstdint>\n\nnamespace quire {\n\n// clang-format off")
    for name, constant in GRIDS:
        kind = getattr(quants, name)
        kind.init_grid()
        grid = kind.grid.reshape(kind.grid_shape)
        values = {value: number for number, value in enumerate(kind.grid_map)}
        bits = 2 if grid.shape[1] == 8 else 3
        points = [sum(values[int(value)] << (bits * i) for i, value in enumerate(point)) for point in grid]
        assert len(set(points)) == len(points)
        print(f"inline constexpr std::array<std::uint16_t, {len(points)}> {constant}{{")
        for row in np.array_split(points, -(-len(points) // 22)):
            print("    " + ",".join(str(point) for point in row) + ",")
        print("};")
    print("// clang-format on\n\n}  // namespace quire")


if __name__ == "__main__":
    main()
