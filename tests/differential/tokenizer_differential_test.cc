// Tenon and the package tokenizers read tokenizer.json, one member of the file changed at a time: the ids
// and the text are the package's, or the file is refused by an error that names the section.
#include <gtest/gtest.h>

#include "support/weights_writer.h"
#include "tokenizer_answers.h"

namespace tenon::differential {
namespace {

TEST(TokenizerDifferential, TheIdsAreThoseOfTokenizersOrTheFileIsRefused) {
  const TokenizerCases cases("tokenizers.json");
  std::map<std::string, boost::json::value> bases;
  judge_all(cases, ".tokenizers", [&](const TokenizerCase& c) {
    boost::json::value& base = bases[c.base()];
    if (base.is_null()) base = read_json(test::root() / "tests/data/tokenizer" / c.base() / "tokenizer.json");
    return cases.judge(c, c.key(0), [&] {
      const testing::ScratchFolder folder;
      folder.put("tokenizer.json", boost::json::serialize(c.changed(base)));
      return make_tokenizer(folder.path());
    });
  });
}

}  // namespace
}  // namespace tenon::differential
