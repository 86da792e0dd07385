#pragma once
// Nelder and Mead's search for a minimum without derivatives ("A simplex method for function minimization", 1965).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace quire {

using Point = std::vector<double>;

// Returns the best point found with about `num_calls` calls of `cost`, which must return finite values. The corners of the first simplex
// are `start` and, for each coordinate, `start` moved by `reach`.
inline Point search_minimum(const std::function<double(const Point&)>& cost, const Point& start, double reach, std::uint32_t num_calls) {
  struct Corner {
    double cost;
    Point at;
  };
  const std::size_t size = start.size();
  std::vector<Corner> corners{{cost(start), start}};
  for (std::size_t i = 0; i < size; ++i) {
    Point at = start;
    at[i] += reach;
    corners.push_back({cost(at), at});
  }
  const auto along = [&](const Point& centre, const Point& from, double factor) {
    Point at(size);
    for (std::size_t i = 0; i < size; ++i) at[i] = centre[i] + factor * (centre[i] - from[i]);
    return Corner{cost(at), at};
  };
  const auto by_cost = [](const Corner& a, const Corner& b) { return a.cost < b.cost; };
  std::ranges::sort(corners, by_cost);
  for (std::uint32_t calls = static_cast<std::uint32_t>(size) + 1; calls < num_calls;) {
    Point centre(size, 0.0);
    for (std::size_t c = 0; c < size; ++c)
      for (std::size_t i = 0; i < size; ++i) centre[i] += corners[c].at[i] / static_cast<double>(size);
    Corner& worst = corners.back();
    const Corner mirrored = along(centre, worst.at, 1.0);
    calls += 2;
    if (mirrored.cost < corners.front().cost) {
      const Corner further = along(centre, worst.at, 2.0);
      worst = further.cost < mirrored.cost ? further : mirrored;
    } else if (mirrored.cost < corners[size - 1].cost) {
      worst = mirrored;
      --calls;
    } else if (const Corner nearer = along(centre, worst.at, mirrored.cost < worst.cost ? 0.5 : -0.5);
               nearer.cost < std::min(worst.cost, mirrored.cost)) {
      worst = nearer;
    } else {
      for (std::size_t c = 1; c <= size; ++c) {
        for (std::size_t i = 0; i < size; ++i) corners[c].at[i] = (corners[c].at[i] + corners[0].at[i]) / 2.0;
        corners[c].cost = cost(corners[c].at);
      }
      calls += static_cast<std::uint32_t>(size);
    }
    std::ranges::sort(corners, by_cost);
  }
  return corners.front().at;
}

}  // namespace quire
