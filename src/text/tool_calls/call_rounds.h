#pragma once
// Edits rounds in a conversation. A round consists of the calls of one answer and their results.
#include <boost/json/array.hpp>

namespace quire {

// Moves results that follow other messages to their round, because templates look for results only directly after the calls.
void gather_results(boost::json::array& messages);

// Adds ids to calls without an id and to their results, because templates print ids and some reject a call without an id. `is_kimi`: the
// ids have Kimi's form. The cost is linear in the messages.
void fill_ids(boost::json::array& messages, bool is_kimi);

// Splits a message with several calls into one message per call, each followed by its results, for templates that show one call per message
// (gpt-oss). A result with the id of a call in an earlier round moves to that round. A result without an id, or with an unknown id, moves
// to the first call of its round that has no result. Each result is kept exactly once. The cost is linear in the messages.
void split_calls(boost::json::array& messages);

}  // namespace quire
