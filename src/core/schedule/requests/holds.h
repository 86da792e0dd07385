#pragma once
// Records which holders keep the blocks of finished requests. A request that has not ended keeps its own blocks. The blocks of a request
// that has ended are freed when the last holder releases them.
#include <cstdint>

#include "base/check.h"
#include "core/schedule/requests/request.h"

namespace quire {

// One bit each in Request::holders.
enum class Holder : std::uint8_t { transfer = 1, pin = 2 };

// Counts the holders, whose bits are in the requests, so that the number of held requests is known without visiting all requests.
class HoldLedger {
 public:
  [[nodiscard]] static bool holds(const Request& request, Holder holder) {
    return (request.holders & static_cast<std::uint8_t>(holder)) != 0;
  }
  // Adds the holder. A second call with the same holder has no effect.
  void take(Request& request, Holder holder) {
    QUIRE_CHECK(request.finished() && request.known, "only a finished and known request has holders");
    if (holds(request, holder)) return;
    request.holders |= static_cast<std::uint8_t>(holder);
    ++count_of(holder);
  }
  // Removes the holder. Returns whether the request has no holder any more.
  [[nodiscard]] bool release(Request& request, Holder holder) {
    QUIRE_CHECK(holds(request, holder) && count_of(holder) > 0, "only a holder releases a request");
    request.holders &= static_cast<std::uint8_t>(~static_cast<std::uint8_t>(holder));
    --count_of(holder);
    return request.holders == 0;
  }
  // Returns the number of requests whose blocks this holder keeps.
  [[nodiscard]] std::uint32_t count(Holder holder) const { return holder == Holder::transfer ? num_transfer_ : num_pin_; }

  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    auto& [num_transfer, num_pin] = self;
    form(num_transfer, num_pin);
  }

 private:
  std::uint32_t& count_of(Holder holder) { return holder == Holder::transfer ? num_transfer_ : num_pin_; }

  std::uint32_t num_transfer_ = 0, num_pin_ = 0;
};

}  // namespace quire
