#include "runtime/kernel/cpu/x86/vec_avx512.h"
// The headers below need the type Vec of the header above.
#include "runtime/kernel/cpu/state_impl.h"
#include "runtime/kernel/implementations.h"

namespace quire::avx512 {

void causal_conv(const ConvRun& run, std::uint32_t begin, std::uint32_t end) {
  check_conv(run, end);
  causal_conv_impl(run, begin, end);
}

void selective_scan(const ScanRun& run) {
  check_scan(run);
  selective_scan_impl(run);
}

void delta_rule(const DeltaRun& run) {
  check_delta(run);
  delta_rule_impl(run);
}

}  // namespace quire::avx512
