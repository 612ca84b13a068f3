#pragma once

#include <trireme/data/token_source.hpp>
#include <trireme/data/tokenizer.hpp>

#include <cstdint>
#include <set>

namespace trireme::data {

/// The special tokens that end counted parts of documents, such as <|im_end|> of chats, without the
/// end of the document: a model that was trained on the file ends its answers with them. Reads the
/// first documents of a file with a mask; empty for a file without a mask.
std::set<std::int64_t> answer_ends(const TokenSource& tokens, const Tokenizer& tokenizer);

}  // namespace trireme::data
