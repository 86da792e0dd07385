#pragma once
// Who keeps the blocks of a finished request: the one ledger. A request that has not ended keeps its own; one that has gives them back
// when the last holder lets go.
#include <cstdint>

#include "base/check.h"
#include "core/schedule/requests/request.h"

namespace quire {

// One bit each in Request::holders.
enum class Holder : std::uint8_t { transfer = 1, pin = 2 };

// The bits lie in the requests; the ledger counts them, so that nobody walks over all requests to know how many are kept.
class HoldLedger {
 public:
  [[nodiscard]] static bool holds(const Request& request, Holder holder) {
    return (request.holders & static_cast<std::uint8_t>(holder)) != 0;
  }
  // Twice is once.
  void take(Request& request, Holder holder) {
    QUIRE_CHECK(request.finished() && request.known, "only a finished request's blocks need a holder");
    if (holds(request, holder)) return;
    request.holders |= static_cast<std::uint8_t>(holder);
    ++count_of(holder);
  }
  // True: nobody keeps the blocks any more.
  [[nodiscard]] bool let_go(Request& request, Holder holder) {
    QUIRE_CHECK(holds(request, holder) && count_of(holder) > 0, "only a holder lets go");
    request.holders &= static_cast<std::uint8_t>(~static_cast<std::uint8_t>(holder));
    --count_of(holder);
    return request.holders == 0;
  }
  // Requests that it keeps blocks of.
  [[nodiscard]] std::uint32_t count(Holder holder) const { return holder == Holder::transfer ? num_transfer_ : num_pin_; }

  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    auto& [num_transfer, num_pin] = self;
    form(num_transfer, num_pin);
  }

 private:
  std::uint32_t& count_of(Holder holder) { return holder == Holder::transfer ? num_transfer_ : num_pin_; }

  std::uint32_t num_transfer_ = 0, num_pin_ = 0;
};

}  // namespace quire
