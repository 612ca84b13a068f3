#include <trireme/commands/packing.hpp>

#include <trireme/base/log.hpp>
#include <trireme/base/text.hpp>

namespace trireme::commands {
namespace {

constexpr double most_padding = 0.05;

}  // namespace

std::string packing_text(const data::TokenSource& file, const data::PackedDocuments& packed) {
  return text(file.path(), ": ", packed.description());
}

void warn_of_packing(const data::TokenSource& file, const data::PackedDocuments& packed) {
  if (packed.documents() == 1)
    log::warn(text(file.path(),
                   " has one document, so that [data] packing = \"documents\" only "
                   "cuts it; tokenize with --document-separator to have documents"));
  else if (packed.padding() > most_padding)
    log::warn(text(file.path(), ": ", fixed(100 * packed.padding(), 1),
                   " % of the tokens of its samples are padding; choose another [model] sequence, "
                   "or [data] packing = \"none\" (its documents have ",
                   file.tokens() / packed.documents(), " tokens on average)"));
}

}  // namespace trireme::commands
