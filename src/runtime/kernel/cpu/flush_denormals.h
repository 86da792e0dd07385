#pragma once
// Makes the thread treat denormal floats as zero, both as inputs and as results, while an object of this class exists.
#ifdef __aarch64__
#include <cstdint>
#else
#include <immintrin.h>
#endif

namespace quire {
namespace {

#ifdef __aarch64__
class FlushDenormals {
 public:
  FlushDenormals() {
    constexpr std::uint64_t kFlushToZero = 1U << 24;
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" : : "r"(before_ | kFlushToZero) : "memory");
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" : : "r"(before_) : "memory"); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  std::uint64_t before_ = 0;
};
#else
class FlushDenormals {
 public:
  FlushDenormals() : before_(_mm_getcsr()) {
    constexpr unsigned kFlushToZero = 1U << 15, kDenormalsAreZeros = 1U << 6;
    _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZeros);
  }
  ~FlushDenormals() { _mm_setcsr(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  unsigned before_;
};
#endif

}  // namespace
}  // namespace quire
