#pragma once

#include <trireme/data/tokenizer.hpp>

#include <cstdint>
#include <memory>

namespace trireme::data {

/// Ids of samples of corrupted spans beside a tokenizer's own ids.
struct AddedIds {
  std::int32_t first_sentinel = 0;  ///< the other sentinels have the ids below it
  std::int64_t sentinels = 0;
  std::int64_t vocabulary = 0;  ///< one past the largest added id
};

/// The tokenizer with sentinels among its special tokens, by the names in T5's tokenizer:
/// <extra_id_0>, <extra_id_1>, … Other added ids have no text. The same tokenizer if its
/// <extra_id_0> is the first sentinel.
std::unique_ptr<Tokenizer> with_sentinels(std::unique_ptr<Tokenizer> tokenizer,
                                          const AddedIds& added);

}  // namespace trireme::data
