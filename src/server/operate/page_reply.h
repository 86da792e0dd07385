#pragma once
// Replies with the HTML pages of the server.
#include <string>
#include <string_view>

#include "server/http/reply.h"

namespace quire {

// Returns the Content-Security-Policy of a page: it may run its <script> and use its <style>, which the policy names by their SHA-256, and
// request data from this server only. Text cannot become HTML (Trusted Types), and images come from data URLs only.
[[nodiscard]] std::string page_policy(std::string_view html);

// Returns the page with its policy. `policy` is the result of page_policy().
[[nodiscard]] Reply page_reply(std::string_view html, const std::string& policy);

}  // namespace quire
