// This selector takes the process down, or does not come back, where it is told to.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "tenon/sdk/sampler.h"

namespace tenon::bad {

struct Faults : sdk::Sampler<Faults> {
  static constexpr const char* kName = "faults";
  static constexpr const char* kDoc = "Ends the process.";
  static constexpr auto kParams = sdk::params(
      sdk::text({.name = "what", .doc = "How.", .value = "segv", .choices = "segv|abort|fpe|stack|exit|leave|hang"}),
      sdk::text({.name = "where", .doc = "In which function.", .value = "step", .choices = "create|record|step"}));
  static constexpr uint32_t kInForms = TENON_DENSE;
  struct Record {
    int32_t none;
  };
  struct Args {
    char what;
  };

  Faults(const sdk::Params& params, const sdk::Env&)
      : what_(params.text("what") == "stack" ? 'k' : params.text("what")[0]), where_(params.text("where")) {
    if (params.text("what") == "leave") what_ = 'l';
    if (where_ == "create") fault(what_);
  }

  Record encode(const sdk::Params&) const { return {}; }
  void record_select(const tenon_candidates&, const tenon_sampling& s, sdk::Recorder& r) {
    if (where_ == "record") fault(what_);
    const tenon_operand operands[] = {{s.next, TENON_WRITE}};
    r.emit<&choose>({.name = "choose", .operands = operands, .chunks = {r.bounds().out_rows}},
                    Args{where_ == "step" ? what_ : '\0'});
  }

 private:
  static void choose(const Args& a, const sdk::Part& part) {
    for (uint32_t row = part.begin(); row < part.end(); ++row) part.ptr<int32_t>(0)[row] = 0;
    fault(a.what);
  }

  // NOLINTNEXTLINE(misc-no-recursion)
  static int deeper(volatile char* above) {
    volatile char here[4096];
    here[0] = *above;
    if (here[0] != 0) return 0;  // it never is
    return deeper(here) + here[0];
  }

  static void fault(char what) {
    char first = 0;
    volatile int zero = 0;
    switch (what) {
      case 's':
        *reinterpret_cast<volatile int*>(static_cast<uintptr_t>(zero)) = 1;
        break;
      case 'a':
        std::abort();
      case 'f':
        raise(SIGFPE);
        break;
      case 'k':
        deeper(&first);
        break;
      case 'e':
        std::exit(0);
      case 'l':
        _exit(0);
      case 'h':
        static_cast<void>(!write(STDERR_FILENO, "hangs\n", 6));
        while (true) pause();
      default:
        break;
    }
  }

  char what_;
  std::string where_;
};

}  // namespace tenon::bad

using tenon::bad::Faults;
TENON_PLUGIN(Faults);
