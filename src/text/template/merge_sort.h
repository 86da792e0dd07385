#pragma once
// A stable sort that stays in bounds if `before` is inconsistent (NaN), which is undefined behaviour in std::sort. If `before` throws,
// `elements` has unspecified values.
#include <algorithm>
#include <utility>
#include <vector>

namespace quire::jinja {

template <class T, class Before>
void merge_sort(std::vector<T>& elements, const Before& before) {
  std::vector<T> merged(elements.size());
  for (std::size_t width = 1; width < elements.size(); width *= 2) {
    for (std::size_t begin = 0; begin < elements.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, elements.size());
      const std::size_t end = std::min(begin + 2 * width, elements.size());
      std::size_t left = begin;
      std::size_t right = middle;
      for (std::size_t out = begin; out < end; ++out) {
        const bool take_right = left == middle || (right < end && before(elements[right], elements[left]));
        merged[out] = std::move(elements[take_right ? right++ : left++]);
      }
    }
    std::swap(elements, merged);
  }
}

}  // namespace quire::jinja
