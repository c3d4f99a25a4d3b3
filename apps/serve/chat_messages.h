// The messages of a conversation, as OpenAI's interface has them, become those that chat templates read.
#pragma once

#include <string_view>
#include <vector>

#include "fields.h"
#include "tenon/core/chat_template.h"

namespace tenon::serve {

// Returns the messages of a conversation. With `text_arguments` the arguments of calls are the text of a JSON object,
// as some chat templates want them, and not an object. Throws ApiError(400) that names the field.
std::vector<ChatMessage> parse_messages(Fields& fields, std::string_view field, bool text_arguments);

}  // namespace tenon::serve
