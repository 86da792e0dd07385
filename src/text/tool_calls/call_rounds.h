#pragma once
// Handles rounds: the calls of one answer and their results.
#include <boost/json/array.hpp>

namespace quire {

// Moves results that come after other messages to their round, because templates look for them only directly after the calls.
void gather_results(boost::json::array& messages);

// Gives an id to calls without one, and to their results: templates print ids, and some reject a call without an id. `is_kimi`: uses the
// form of Kimi's ids. The cost is linear in the messages.
void fill_ids(boost::json::array& messages, bool is_kimi);

// Makes a message of each call, followed by its results, for a template that shows one call per message (gpt-oss). A result that names a
// call of an earlier round moves there. A result without an id, or with an unknown id, moves to the first call of its round that has no
// result. Each result stays exactly once. The cost is linear in the messages.
void split_calls(boost::json::array& messages);

}  // namespace quire
