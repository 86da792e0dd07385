#pragma once
// The calls in the byte form of core_calls.h.
#include <cstdint>

namespace quire {

enum class CallKind : std::uint8_t {
  add = 1,
  continue_session,
  fork,
  schedule,
  apply,
  set_drafts,
  set_drafts_in_plan,
  finish,
  reset_prefix_cache,
  end_pins,
  reset_connector_cache,
  reset_encoder_cache,
  set_pause_state,
  make_stats,
  set_swap_costs,
  forget_blocks,
  finish_all
};

inline constexpr std::uint8_t kCallsMagic[] = {'Q', 'C', 'C', 5};

}  // namespace quire
