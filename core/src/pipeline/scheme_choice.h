// This chooses the installed scheme for a matrix where the configuration does not say one or names one that refuses.
//
// A scheme is asked as it would be for the pipeline (claim, bind, footprint), and then let go again. Its footprint says
// whether it holds every weight as the file has it, and how many bytes it takes: with quantization.use = "auto" the
// exact scheme of the fewest bytes gets the matrix (kQuantizationDoc of the configuration has the rule).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "components.h"
#include "linear_view.h"

namespace tenon {

class SchemeChoice {
 public:
  // `shapes` are those of every program that will be recorded.
  SchemeChoice(Components& components, const std::vector<ProgramShape>& shapes)
      : components_(components), shapes_(shapes) {}

  // Returns the scheme for a matrix that "auto" holds; nullptr and why if there is none. `view` shows the one matrix.
  const Scheme* choose(const Site& site, const LinearView& view, std::string& why) const;
  // Returns the scheme that holds the matrix as the file has it, `named` if it does and else that of the fewest bytes;
  // nullptr if no scheme does.
  const Scheme* exact(const Scheme& named, const Site& site, const LinearView& view) const;
  // Returns what a message about a scheme that refuses goes on with: the schemes that would take the matrices.
  std::string advice(const Scheme& refusing, const Site& site, const LinearView& view) const;

 private:
  struct Offer {
    const Scheme* scheme;
    bool exact;
    uint64_t bytes;
  };
  // Returns what a scheme would do with the matrices; nothing if it refuses, and then why.
  std::optional<Offer> offer_of(const Scheme& scheme, const Site& site, const LinearView& view, std::string& why) const;
  // Returns what the installed schemes would do, in their order, and adds why others refuse, a line each.
  std::vector<Offer> offers(const Site& site, const LinearView& view, std::string& refused) const;
  // Returns the exact one of the fewest bytes, without exact ones that of the fewest bytes; of equals the first, and
  // nullptr of none.
  static const Offer* best(std::span<const Offer> offers);
  static const std::string& name_of(const Offer& offer);
  // Returns the handle of the matrices, which the caller unbinds; nothing if the scheme refuses.
  std::optional<void*> bind_for_now(const Scheme& scheme, const LinearView& view, Call& call) const;

  Components& components_;
  const std::vector<ProgramShape>& shapes_;
};

}  // namespace tenon
