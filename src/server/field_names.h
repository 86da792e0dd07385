#pragma once
// Fields that other APIs call otherwise than chats do.
#include "quire/error.h"
#include "server/request/completion_request.h"

namespace quire {

// An error of the chat that a request was taken for, in the words of the request.
[[nodiscard]] Error in_words_of(AnswerShape shape, Error error);

}  // namespace quire
