// Runs random streams of events for the core, from the fuzzer's bytes.
#include "fuzz/core_events.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quire::test::ByteSource in({data, size});
  quire::test::CoreEvents<quire::test::ByteSource> events(in);
  if (events.valid()) {
    while (!in.empty()) events.one_event();
    events.drain();
  }
  return 0;
}
