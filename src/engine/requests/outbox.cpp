#include "engine/requests/outbox.h"

#include <algorithm>
#include <functional>

namespace quire {

void Outbox::deliver() {
  std::ranges::sort(outgoing_, [](const Outgoing& a, const Outgoing& b) {
    if (a.sink != b.sink) return std::less<>{}(a.sink, b.sink);
    return a.output.id != b.output.id ? a.output.id < b.output.id : a.index < b.index;
  });
  for (std::size_t i = 0; i < outgoing_.size();) {
    OutputSink* sink = outgoing_[i].sink;
    std::vector<RequestOutput> outputs;
    for (; i < outgoing_.size() && outgoing_[i].sink == sink; ++i) outputs.push_back(std::move(outgoing_[i].output));
    sink->deliver(std::move(outputs));
  }
  outgoing_.clear();
}

}  // namespace quire
