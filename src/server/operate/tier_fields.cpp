#include "server/operate/tier_fields.h"

namespace quire {
namespace {

template <auto Member>
double number_of(const KvTierStats& tier) {
  return static_cast<double>(tier.*Member);
}

constexpr bool kCounter = true, kGauge = false;
using Tier = KvTierStats;

constexpr TierField kFields[] = {
    {"budget_bytes", kGauge, "Most that the tier takes.", &number_of<&Tier::budget_bytes>},
    {"places", kGauge, "Places of the tier, each for a KV cache block.", &number_of<&Tier::num_places>},
    {"used_places", kGauge, "Places that hold a block, or are about to.", &number_of<&Tier::num_used_places>},
    {"unread_places", kGauge, "Places of which it is not known yet what earlier runs left there.", &number_of<&Tier::num_unread_places>},
    {"restored_blocks", kCounter, "Blocks that earlier runs left.", &number_of<&Tier::num_restored_blocks>},
    {"stored_blocks", kCounter, "Blocks stored.", &number_of<&Tier::num_stored_blocks>},
    {"stored_bytes", kCounter, "Bytes stored.", &number_of<&Tier::bytes_stored>},
    {"loaded_blocks", kCounter, "Blocks loaded, each verified.", &number_of<&Tier::num_loaded_blocks>},
    {"loaded_bytes", kCounter, "Bytes loaded.", &number_of<&Tier::bytes_loaded>},
    {"loaded_tokens", kCounter, "Prompt tokens that were loaded instead of computed.", &number_of<&Tier::tokens_loaded>},
    {"without_room", kCounter, "Blocks not stored when they could be: all places were in transfer, or unread.",
     &number_of<&Tier::num_without_room>},
    {"refused", kCounter, "Blocks and table entries whose bytes are not those that were stored: misses.",
     &number_of<&Tier::num_refused_blocks>},
    {"failed", kCounter, "Blocks that the tier did not read or write.", &number_of<&Tier::num_failed_blocks>},
    {"held_back", kCounter, "Blocks not stored when they could be: a quarter of the KV cache was on its way already.",
     &number_of<&Tier::num_held_back>},
    {"stored_at_end", kCounter, "Blocks held back, and stored when their request had ended and no other was there.",
     &number_of<&Tier::num_stored_at_end>},
    {"thinned", kCounter, "Blocks not stored, because nearly all of the tier leaves it without having been found: it is too small.",
     &number_of<&Tier::num_thinned_blocks>},
    {"taken_blocks", kCounter, "Of the stored blocks, those that came from the tier above as they cooled there.",
     &number_of<&Tier::num_taken_blocks>},
    {"dropped", kCounter, "Blocks evicted before they were in the tier below, where blocks move down.",
     &number_of<&Tier::num_dropped_blocks>},
    {"computed_tokens", kCounter, "Prompt tokens of the tier that were computed, which is faster than to load them.",
     &number_of<&Tier::num_computed_tokens>},
    {"load_bytes_per_second", kGauge, "How fast blocks were loaded lately; 0: not known yet.", &number_of<&Tier::load_bytes_per_s>},
    {"compute_tokens_per_second", kGauge, "How fast prompts were computed lately; 0: not known yet.",
     &number_of<&Tier::compute_tokens_per_s>},
    {"loads_left_out", kGauge, "1: the tier fails, hangs or is gone, and nothing is loaded from it.", &number_of<&Tier::loads_left_out>},
    {"stores_left_out", kGauge, "1: the tier fails, hangs or is gone, and nothing is stored there.", &number_of<&Tier::stores_left_out>},
    {"left_out", kCounter, "How often loads or stores were left out.", &number_of<&Tier::num_times_left_out>},
    {"asked_blocks", kCounter, "Names of blocks for which a remote store was asked.", &number_of<&Tier::num_asked_blocks>},
    {"found_blocks", kCounter, "Of these, those that it had.", &number_of<&Tier::num_found_blocks>},
    {"late_answers", kCounter, "Questions to a remote store that were not answered, or too late: what it may have had was computed.",
     &number_of<&Tier::num_late_answers>},
    {"absent_blocks", kCounter, "Blocks that a remote store had forgotten when they were to be loaded.",
     &number_of<&Tier::num_absent_blocks>},
    {"open_leases", kGauge, "Requests whose blocks are kept for another server.", &number_of<&Tier::num_open_leases>},
    {"leases", kCounter, "Requests whose blocks were kept for another server.", &number_of<&Tier::num_leases>},
    {"expired_leases", kCounter, "Of these, those that nobody had fetched in time.", &number_of<&Tier::num_expired_leases>},
};

}  // namespace

std::span<const TierField> tier_fields() {
  return kFields;
}

}  // namespace quire
