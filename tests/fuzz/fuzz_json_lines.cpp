#include <trireme/base/check.hpp>
#include <trireme/data/instructions.hpp>
#include <trireme/data/tasks.hpp>

#include "memory_file.hpp"

#include <cstdint>
#include <cstdlib>
#include <numeric>

using namespace trireme;
using fuzz::MemoryFile;

/// Lines of instruction data and of tasks: read, or refused by a UsageError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const MemoryFile file;
  static const auto tokenizer = data::make_tokenizer("bytes");
  file.replace(bytes, size);
  try {
    data::InstructionEncoder encoder(*tokenizer, data::ChatFormat::none, false);
    data::read_json_lines(file.path(), data::instruction_form, [&](const data::JsonLine& line) {
      const data::CountedTokens found = encoder.encode(line);
      std::int64_t tokens = 0;
      for (const auto& [count, counted] : found.runs) tokens += count;
      if (tokens != std::ssize(found.ids)) std::abort();
    });
  } catch (const UsageError&) {
  }
  try {
    std::vector<data::Request> requests;
    const data::TaskOptions options{16, 257, 256};
    const data::Task task = data::read_task(file.path(), *tokenizer, options, requests);
    for (const data::Request& r : requests)
      if (r.context < 1 || r.context >= std::ssize(r.tokens) || std::ssize(r.tokens) > 17)
        std::abort();
    data::measures(task, std::vector<data::Likelihood>(requests.size(), {-1, false}));
  } catch (const UsageError&) {
  }
  return 0;
}
