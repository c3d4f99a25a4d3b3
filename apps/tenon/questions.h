// Multiple-choice questions are read as they are published: JSON, one object a line or a list of them.
//
//   HellaSwag  {"activity_label": "Cooking", "ctx": "A man", "endings": ["sings.", "swims."], "label": 0}
//   MMLU       {"question": "2 + 2?", "choices": ["3", "4"], "answer": 1}
//
// Numbers of answers count from 0, and may be texts; MMLU's may be letters.
#pragma once

#include <string>
#include <vector>

namespace tenon::app {

struct Question {
  std::string context;
  std::vector<std::string> endings;  // they stand after the context, with the blank that they begin with
  size_t answer = 0;                 // it is the right one
  uint32_t line = 0;                 // it is the line in the file, from 1 on; of a list, the number of its object
};

// Throws Error(kRequest) with all that is wrong in the file, or if it has no questions. `file` is only named.
std::vector<Question> read_questions(const std::string& text, const std::string& file);

}  // namespace tenon::app
