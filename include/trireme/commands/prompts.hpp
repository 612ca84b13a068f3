#pragma once

#include <trireme/commands/options.hpp>
#include <trireme/data/chat.hpp>
#include <trireme/data/tokenizer.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::commands {

/// A text to continue; with --chat, the conversation to continue.
struct Prompt {
  std::string words;
  data::Chat chat;
  std::string where;  ///< "the prompt", or file and line
};

/// The prompts of the options. UsageError with file and line.
std::vector<Prompt> prompts_of(const GenerateOptions& options);

/// The token that --prefix names: a special token, or "end-of-document". "": the end of a document.
std::int32_t prefix_token(const data::Tokenizer& tokenizer, const std::string& name);

/// The ids before a prompt. "": the tokenizer's usual ids before a text; "none": no ids.
std::vector<std::int32_t> ids_before_prompt(const data::Tokenizer& tokenizer,
                                            const std::string& prefix);

/// A sentence about the ids before prompts.
std::string describe_prefix(const data::Tokenizer& tokenizer, const std::string& prefix);

}  // namespace trireme::commands
