#pragma once
// Counts how often a fuzzer reached its subject, so that a fuzzer fails if all its inputs are refused.
#include <cstdint>
#include <cstdio>

namespace quire::test {

// One static object per subject. It prints its count when the program ends. tests/fuzz/play.cpp fails if a count is 0.
class FuzzSubject {
 public:
  explicit FuzzSubject(const char* name) : name_(name), next_(first_) { first_ = this; }
  ~FuzzSubject() { std::fprintf(stderr, "reached %s: %llu times\n", name_, static_cast<unsigned long long>(count_)); }
  FuzzSubject(const FuzzSubject&) = delete;
  FuzzSubject& operator=(const FuzzSubject&) = delete;

  void reached() { ++count_; }

  [[nodiscard]] static bool all_reached() {
    for (const FuzzSubject* subject = first_; subject != nullptr; subject = subject->next_)
      if (subject->count_ == 0) return false;
    return true;
  }

 private:
  static inline FuzzSubject* first_ = nullptr;
  const char* name_;
  FuzzSubject* next_;
  std::uint64_t count_ = 0;
};

}  // namespace quire::test
