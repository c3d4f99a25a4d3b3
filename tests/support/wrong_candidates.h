// This says what sampler.leaves_wrong_values (tests/bad_plugins) leaves wrong by each value of its parameter, and what
// is said of it on every device.
#pragma once

namespace tenon::test {

struct Wrong {
  const char *what, *message;
};

inline constexpr Wrong kWrongCandidates[] = {{"id", "leaves candidate 260, outside of the vocabulary of 260"},
                                             {"negative", "leaves candidate -1, outside of the vocabulary of 260"},
                                             {"many", "leaves 5 candidates; it has room for 4"},
                                             {"huge", "leaves 1073741824 candidates; it has room for 4"},
                                             {"none", "leaves no candidate"},
                                             {"less", "leaves -1 candidates; it has room for 4"},
                                             {"out", "leaves no candidate with a logit above -infinity"},
                                             {"dense_out", "leaves no candidate with a logit above -infinity"}};

}  // namespace tenon::test
