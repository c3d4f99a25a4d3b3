// `known_schedule FILE` writes the trace of a known schedule of requests.
#include "support/known_schedule.h"

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    tenon::test::record_known_schedule(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
