// Replaces llguidance.cpp in builds without llguidance.
#include "base/check.h"
#include "runtime/grammar/grammar_matcher.h"

namespace quire {

struct GrammarMatcher::State {};

GrammarMatcher::GrammarMatcher(std::unique_ptr<State> state) : state_(std::move(state)) {}
GrammarMatcher::~GrammarMatcher() = default;
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;

// The next functions are never called, because this build cannot create a matcher.
bool GrammarMatcher::fill(std::span<std::uint32_t>) {
  return false;
}
bool GrammarMatcher::accept(TokenId) {
  return false;
}
std::uint32_t GrammarMatcher::count_valid(std::span<const TokenId>) {
  return 0;
}
bool GrammarMatcher::rollback(std::uint32_t) {
  return false;
}
bool GrammarMatcher::is_over() const {
  return true;
}
std::string GrammarMatcher::error() const {
  return {};
}
GrammarMatcher GrammarMatcher::clone() const {
  return GrammarMatcher(nullptr);
}

Result<std::shared_ptr<const GrammarCompiler>> GrammarCompiler::create(const TokenizerSpec&, std::uint32_t) {
  return fail(ErrorCode::unsupported, "structured_output", "this build of quire does not include llguidance",
              "build with QUIRE_GUIDANCE (./dev does), or leave structured output out");
}

bool has_structured_output() {
  return false;
}

Result<void> check_schema(const std::string&, bool) {
  return {};
}

}  // namespace quire
