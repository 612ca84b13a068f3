#pragma once

#include <trireme/data/packed_documents.hpp>
#include <trireme/data/token_source.hpp>

#include <string>

namespace trireme::commands {

/// Documents, samples, padding and cut documents of a packed file.
std::string packing_text(const data::TokenSource& file, const data::PackedDocuments& packed);

/// Warns if packing has little effect or much padding.
void warn_of_packing(const data::TokenSource& file, const data::PackedDocuments& packed);

}  // namespace trireme::commands
